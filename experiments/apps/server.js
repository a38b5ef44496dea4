// An application for Node: each answer takes a fixed amount of work. Arguments: host, port, backlog.
"use strict";
const crypto = require("node:crypto");
const http = require("node:http");

const ROUNDS = Number(process.env.ROUNDS ?? 4000);
const [host, port, backlog] = process.argv.slice(2);

http.createServer((request, response) => {
    const page = crypto.pbkdf2Sync("page", "salt", ROUNDS, 32, "sha256").toString("hex").repeat(16);
    response.writeHead(200, { "Content-Type": "text/html", "Content-Length": page.length });
    response.end(page);
}).listen({ host, port: Number(port), backlog: Number(backlog ?? 511) });
