package asyncapi

import (
	"encoding/json"

	"go.yaml.in/yaml/v3"
)

// Node is a JSON value as YAML, with the order of keys and the spelling of numbers kept.
func Node(raw json.RawMessage) (*yaml.Node, error) { return toNode(raw) }

// JSON is a YAML value as JSON without white space, with the order of keys kept.
func JSON(n *yaml.Node) (json.RawMessage, error) { return toJSON(n) }
