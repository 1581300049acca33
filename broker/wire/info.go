package wire

import "encoding/json"

// ServerInfo is the JSON of INFO.
type ServerInfo struct {
	ID              string   `json:"server_id"`
	Name            string   `json:"server_name"`
	Version         string   `json:"version"`
	Proto           int      `json:"proto"`
	GitCommit       string   `json:"git_commit,omitempty"`
	Herald          string   `json:"herald,omitempty"` // Herald's own version; Version is the one clients gate on
	Go              string   `json:"go"`
	Host            string   `json:"host"`
	Port            int      `json:"port"`
	Headers         bool     `json:"headers"`
	AuthRequired    bool     `json:"auth_required,omitempty"`
	TLSRequired     bool     `json:"tls_required,omitempty"`
	TLSVerify       bool     `json:"tls_verify,omitempty"`
	TLSAvailable    bool     `json:"tls_available,omitempty"`
	MaxPayload      int      `json:"max_payload"`
	JetStream       bool     `json:"jetstream,omitempty"`
	IP              string   `json:"ip,omitempty"`
	ClientID        uint64   `json:"client_id,omitempty"`
	ClientIP        string   `json:"client_ip,omitempty"`
	Nonce           string   `json:"nonce,omitempty"`
	Cluster         string   `json:"cluster,omitempty"`
	ClusterDynamic  bool     `json:"cluster_dynamic,omitempty"`
	Domain          string   `json:"domain,omitempty"`
	ConnectURLs     []string `json:"connect_urls,omitempty"`
	WSConnectURLs   []string `json:"ws_connect_urls,omitempty"`
	LameDuckMode    bool     `json:"ldm,omitempty"`
	XKey            string   `json:"xkey,omitempty"`
	APILevel        int      `json:"api_lvl,omitempty"`
	ConnectInfo     bool     `json:"connect_info,omitempty"`
	RemoteAccount   string   `json:"remote_account,omitempty"`
	AccountIsSystem bool     `json:"acc_is_sys,omitempty"`
	HeraldVersion   string   `json:"herald_version,omitempty"`
}

// AppendInfo appends the INFO line.
func AppendInfo(dst []byte, i *ServerInfo) []byte {
	b, err := json.Marshal(i)
	if err != nil {
		// Strings, numbers and booleans only: it can't fail.
		panic("wire: encode INFO: " + err.Error())
	}
	dst = append(dst, "INFO "...)
	dst = append(dst, b...)
	return append(dst, " \r\n"...)
}

// ConnectOptions is the JSON of CONNECT.
type ConnectOptions struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Echo         bool   `json:"echo"`
	TLSRequired  bool   `json:"tls_required"`
	User         string `json:"user,omitempty"`
	Pass         string `json:"pass,omitempty"`
	Token        string `json:"auth_token,omitempty"`
	Nkey         string `json:"nkey,omitempty"`
	JWT          string `json:"jwt,omitempty"`
	Sig          string `json:"sig,omitempty"`
	Name         string `json:"name,omitempty"`
	Lang         string `json:"lang,omitempty"`
	Version      string `json:"version,omitempty"`
	Protocol     int    `json:"protocol"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
	Account      string `json:"account,omitempty"`
	NewAccount   bool   `json:"new_account,omitempty"`
	ProxySig     string `json:"proxy_sig,omitempty"`
}

// DefaultConnect is what holds before CONNECT comes, and for the fields it
// doesn't name.
func DefaultConnect() ConnectOptions {
	return ConnectOptions{Verbose: true, Pedantic: true, Echo: true}
}

// ParseConnect decodes CONNECT's argument over the defaults.
func ParseConnect(arg []byte) (ConnectOptions, error) {
	o := DefaultConnect()
	if err := json.Unmarshal(arg, &o); err != nil {
		return o, err
	}
	return o, nil
}
