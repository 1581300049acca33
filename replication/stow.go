package replication

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
)

// Leftovers returns the data groups of which there are files here while no replica of
// them runs or is being started: of those that are not to come, what a removal that was
// cut short has left.
func (n *Node) Leftovers() ([]topics.GroupID, error) {
	var found []topics.GroupID
	for _, kind := range []string{"stable", "groups"} {
		entries, err := os.ReadDir(filepath.Join(n.cfg.Dir, kind))
		if err != nil && !disk.IsMissing(err) {
			return nil, fmt.Errorf("look for replicas that are left over: %w", err)
		}
		for _, e := range entries {
			number, err := strconv.ParseUint(e.Name(), 10, 32)
			id := topics.GroupID(number)
			if err != nil || id == topics.CatalogueGroup || slices.Contains(found, id) {
				continue
			}
			n.mu.Lock()
			_, known := n.groups[id]
			n.mu.Unlock()
			if !known {
				found = append(found, id)
			}
		}
	}
	return found, nil
}

// StowGroup moves the files of a replica that is wanted no more to damaged/, which it
// returns: nothing is deleted that might be the last copy of something. The group must
// not run here.
func (n *Node) StowGroup(id topics.GroupID, reason string) (moved string, err error) {
	if n.group(id) != nil {
		return "", fmt.Errorf("put away what is left of group %d: its replica runs", id)
	}
	to := filepath.Join(n.cfg.Dir, "damaged", time.Now().UTC().Format(damagedTime)+"-"+strconv.FormatUint(uint64(id), 10))
	if err := n.cfg.FS.MkdirAll(to); err != nil {
		return "", fmt.Errorf("put away what is left of group %d: %w", id, err)
	}
	err = n.clear(id, func(path string) error {
		return n.cfg.FS.Rename(path, filepath.Join(to, filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path)))
	})
	if err != nil {
		return "", fmt.Errorf("put away what is left of group %d: %w", id, err)
	}
	n.cfg.Log.Warn("files of a replica that this node is not to have were put away", "group", id, "reason", reason, "moved", to)
	return to, nil
}
