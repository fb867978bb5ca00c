// A producer and a consumer over HTTP, with nothing but Go's standard library. RELIQ_API: the address of the service.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

type order struct {
	Order int `json:"order"`
}

type problem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// call sends a request and decodes its answer; an error has the code of application/problem+json.
func call(method, path, idempotencyKey string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, os.Getenv("RELIQ_API")+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if key := os.Getenv("RELIQ_KEY"); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", `"`+idempotencyKey+`"`)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		var said problem
		_ = json.NewDecoder(response.Body).Decode(&said)
		return fmt.Errorf("%s: %s", said.Code, said.Detail)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	// Send. With the key, the same request may be sent again after a lost answer, and counts once.
	for number := 1; number <= 3; number++ {
		var first, again struct{ ID string }
		body := map[string]any{"body": order{number}}
		key := fmt.Sprintf("order-%d", number)
		must(call("POST", "/v1/queues/orders/messages", key, body, &first))
		must(call("POST", "/v1/queues/orders/messages", key, body, &again))
		same := "another"
		if first.ID == again.ID {
			same = "the same"
		}
		fmt.Printf("sent %d, again: %s\n", number, same)
	}

	// Consume: lease, handle, settle.
	var leased struct {
		Lease    string
		Messages []struct {
			ID   string
			Body order
		}
	}
	must(call("POST", "/v1/queues/orders/leases", "", map[string]any{"limit": 10, "wait": 5, "lease": 30}, &leased))
	ack, retry := []string{}, []map[string]any{}
	for _, message := range leased.Messages {
		if message.Body.Order == 2 {
			retry = append(retry, map[string]any{"id": message.ID, "delay": 60, "error": "out of stock"})
			continue
		}
		fmt.Printf("shipped %d\n", message.Body.Order)
		ack = append(ack, message.ID)
	}
	var settled struct{ Results []struct{ Code string } }
	must(call("POST", "/v1/queues/orders/leases/"+leased.Lease+"/settle", "", map[string]any{"ack": ack, "retry": retry}, &settled))
	done := 0
	for _, result := range settled.Results {
		if result.Code == "done" {
			done++
		}
	}
	fmt.Printf("settled %d\n", done)

	response, err := http.Get(os.Getenv("RELIQ_API") + "/v1/queues/orders")
	must(err)
	defer response.Body.Close()
	var queue struct {
		Delayed  int
		Counters map[string]int
	}
	must(json.NewDecoder(response.Body).Decode(&queue))
	fmt.Printf("acked %d, delayed %d\n", queue.Counters["acked"], queue.Delayed)
}
