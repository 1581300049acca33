package config

// Starter is a configuration to begin with; docs/deploy/brokerd.conf is the same.
const Starter = `# What the unit and the image start with. Listening for everybody wants users.
listen: "127.0.0.1:4222"
http: "127.0.0.1:8222"
jetstream {
  store_dir: "/var/lib/herald"
}
`
