package mesh

import (
	"bufio"
	"net"
	"time"

	"github.com/heraldmq/herald/broker/auth"
)

// infoOf is INFO as node i sends it.
func (c *cluster) infoOf(i int) string {
	conn, err := net.Dial("tcp", c.srv[i].Addr().String())
	must(c.t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	must(c.t, err)
	return line
}

func accounts(names ...string) (c auth.Config) {
	for _, n := range names {
		c.Accounts = append(c.Accounts, auth.Account{Name: n})
		c.Users = append(c.Users, auth.User{Name: n, Password: "p", Account: n})
	}
	return c
}
