# An application for Puma: each answer takes a fixed amount of work.
require "openssl"

ROUNDS = Integer(ENV.fetch("ROUNDS", "4000"))

run lambda { |_environment|
  work = { salt: "salt", iterations: ROUNDS, length: 32, hash: "sha256" }
  page = OpenSSL::KDF.pbkdf2_hmac("page", **work).unpack1("H*") * 16
  [200, { "content-type" => "text/html", "content-length" => page.bytesize.to_s }, [page]]
}
