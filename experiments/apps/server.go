// An application for Go's net/http: each answer takes a fixed amount of work. Argument: the address.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"log"
	"net/http"
	"os"
	"strings"
)

const rounds = 20000

func main() {
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		sum := sha256.Sum256([]byte("page"))
		for range rounds {
			sum = sha256.Sum256(sum[:])
		}
		response.Header().Set("Content-Type", "text/html")
		response.Write([]byte(strings.Repeat(hex.EncodeToString(sum[:]), 16)))
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
