package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/topics/schema"
)

const codecHelp = `how payloads are read: json, @FILE.avsc, @FILE.proto or @FILE.proto#MESSAGE,
an object like {"avro": …}, or @FILE with one (which may have framing, id and writers)`

// codecOf is the codec that a flag says: "" for JSON.
func codecOf(text string) (string, error) {
	path, isFile := strings.CutPrefix(text, "@")
	if !isFile {
		if text == "json" {
			return "", nil
		}
		return text, nil
	}
	path, message, _ := strings.Cut(path, "#")
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	src := schema.Source{Format: schema.Avro, Text: string(b)}
	var whole map[string]json.RawMessage
	_ = json.Unmarshal(b, &whole) // a schema in Avro that is no object has neither
	switch {
	case whole["avro"] != nil || whole["protobuf"] != nil: // a codec, not a schema
		if src, err = schema.ParseCodec(string(b)); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	case !json.Valid(b):
		src = schema.Source{Format: schema.Protobuf, Text: string(b), Message: message}
	}
	if _, err := schema.Compile(src); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return src.Codec().String(), nil
}

// advertisedCodec is that of the advertisements of a subject, which must agree.
func advertisedCodec(ctx context.Context, c *client.Client, subject string) (string, error) {
	ads, err := c.Discover(ctx, client.Query{Subject: subject})
	if err != nil {
		return "", err
	}
	codec, from := "", ""
	for i := range ads {
		if ads[i].Schema == nil || ads[i].Schema.Format == "none" {
			continue
		}
		one, err := ads[i].Schema.Codec()
		if err != nil {
			return "", fmt.Errorf("the advertisement %s: %w", ads[i].Name, err)
		}
		if from != "" && one != codec {
			return "", fmt.Errorf("%s and %s advertise different schemas for %s: name one with --codec @FILE", from, ads[i].Name, subject)
		}
		codec, from = one, ads[i].Name
	}
	if from == "" {
		return "", errors.New("no advertisement of " + subject + " has a schema")
	}
	return codecOf(codec)
}

// codec is the codec that --codec says for a subject.
func (a *app) codec(cmd *cobra.Command, c *client.Client, text, subject string) (string, error) {
	get := codecOf
	if text == "advertised" {
		get = func(string) (string, error) { return advertisedCodec(cmd.Context(), c, subject) }
	}
	codec, err := get(text)
	if err != nil {
		return "", usage(cmd, "--codec: %v", err)
	}
	return codec, nil
}
