// Prints the group of the key exchange that Go's TLS client agrees on with a server, and the status of a request.
package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
)

func main() {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	response, err := (&http.Client{Transport: transport}).Get(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(response.TLS.CurveID, response.StatusCode)
}
