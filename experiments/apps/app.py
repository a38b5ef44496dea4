"""An application for gunicorn: each answer takes a fixed amount of work."""

import hashlib
import os

ROUNDS = int(os.environ.get("ROUNDS", "4000"))


def app(environ, start_response):
    page = hashlib.pbkdf2_hmac("sha256", b"page", b"salt", ROUNDS).hex().encode() * 16
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(page)))])
    return [page]
