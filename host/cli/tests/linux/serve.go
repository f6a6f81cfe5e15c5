// Serves HTTP with Go's own library.
package main

import (
	"fmt"
	"net/http"
)

func main() {
	http.HandleFunc("/", func(to http.ResponseWriter, from *http.Request) {
		fmt.Fprintf(to, "go: %s\n", from.URL.Path)
	})
	fmt.Println(http.ListenAndServe(":80", nil))
}
