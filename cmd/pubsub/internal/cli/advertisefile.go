package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/asyncapi"
)

// readAdvertisements reads a file: one advertisement, several as YAML documents or as a
// list, or an AsyncAPI document.
func readAdvertisements(in io.Reader, path string) ([]client.Advertisement, error) {
	var b []byte
	var err error
	if path == "-" {
		b, err = io.ReadAll(in)
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the advertisement: %w", err)
	}
	var ads []client.Advertisement
	if asyncapi.Is(b) {
		ads, err = asyncapi.Import(b)
	} else {
		ads, err = plainAdvertisements(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ads, nil
}

// plainAdvertisements reads YAML or JSON, so that files in both formats go through the
// same decoding; errors name the line.
func plainAdvertisements(b []byte) (ads []client.Advertisement, err error) {
	add := func(raw []byte) error {
		var ad client.Advertisement
		if err := json.Unmarshal(raw, &ad); err != nil {
			return err
		}
		ads = append(ads, ad)
		return nil
	}
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) && json.Valid(b) {
		return ads, add(b) // as it is: the schema's digest is of its text
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var doc any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		list, ok := doc.([]any)
		if !ok {
			list = []any{doc}
		}
		for _, v := range list {
			if _, ok := v.(map[string]any); !ok {
				return nil, errors.New("an advertisement is a mapping of its fields")
			}
			raw, err := json.Marshal(v)
			if err == nil {
				err = add(raw)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if len(ads) == 0 {
		return nil, errors.New("it has no advertisement")
	}
	return ads, nil
}

// readSchema reads a schema, whose format its name tells; behind # the message of a .proto.
func readSchema(path string) (*client.Schema, error) {
	path, message, named := strings.Cut(path, "#")
	if named && !strings.EqualFold(filepath.Ext(path), ".proto") {
		return nil, fmt.Errorf("%s is not a .proto file: only those have messages to choose from", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &client.Schema{Format: "json-schema"}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".proto":
		s.Format, s.Message = "protobuf", message
		s.Inline, err = json.Marshal(string(b))
		return s, err
	case ".avsc", ".avro":
		s.Format = "avro"
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("%s is not JSON", path)
	}
	s.Inline = b
	return s, nil
}
