package jetstream

// routes are all subjects but MSG.NEXT and DIRECT.GET, behind "$JS.API.".
var routes = map[string]*route{
	"INFO": {reply: "account_info_response", place: ofCatalogue, serve: (*request).accountInfo},

	"STREAM.CREATE":          {reply: "stream_create_response", tokens: 1, mutates: true, place: ofCatalogue, serve: (*request).streamCreate},
	"STREAM.UPDATE":          {reply: "stream_update_response", tokens: 1, mutates: true, place: ofCatalogue, serve: (*request).streamUpdate},
	"STREAM.INFO":            {reply: "stream_info_response", tokens: 1, serve: (*request).streamInfoReply},
	"STREAM.DELETE":          {reply: "stream_delete_response", tokens: 1, mutates: true, place: ofCatalogue, serve: (*request).streamDelete},
	"STREAM.PURGE":           {reply: "stream_purge_response", tokens: 1, mutates: true, serve: (*request).streamPurge},
	"STREAM.NAMES":           {reply: "stream_names_response", place: ofCatalogue, serve: (*request).streamNames},
	"STREAM.LIST":            {reply: "stream_list_response", place: ofCatalogue, serve: (*request).streamList},
	"STREAM.MSG.GET":         {reply: "stream_msg_get_response", tokens: 1, serve: (*request).msgGet},
	"STREAM.MSG.DELETE":      {reply: "stream_msg_delete_response", tokens: 1, mutates: true, serve: (*request).msgDelete},
	"STREAM.SNAPSHOT":        {reply: "stream_snapshot_response", tokens: 1, serve: (*request).snapshot},
	"STREAM.RESTORE":         {reply: "stream_restore_response", tokens: 1, place: ofCatalogue, serve: (*request).restore},
	"STREAM.LEADER.STEPDOWN": {reply: "stream_leader_stepdown_response", tokens: 1, serve: (*request).leaderStepdown},
	"STREAM.PEER.REMOVE":     {reply: "stream_remove_peer_response", tokens: 1, serve: (*request).notOffered},
	"STREAM.PEER.EVACUATE":   {reply: "stream_evacuate_peer_response", tokens: 1, serve: (*request).notOffered},
	"STREAM.CANCEL_MOVE":     {reply: "stream_cancel_move_response", tokens: 1, serve: (*request).notOffered},

	"CONSUMER.CREATE":          {reply: "consumer_create_response", tokens: 2, tail: true, mutates: true, serve: (*request).consumerCreate},
	"CONSUMER.DURABLE.CREATE":  {reply: "consumer_create_response", tokens: 2, mutates: true, serve: (*request).consumerCreate},
	"CONSUMER.INFO":            {reply: "consumer_info_response", tokens: 2, serve: (*request).consumerInfoReply},
	"CONSUMER.DELETE":          {reply: "consumer_delete_response", tokens: 2, mutates: true, serve: (*request).consumerDelete},
	"CONSUMER.NAMES":           {reply: "consumer_names_response", tokens: 1, serve: (*request).consumerNames},
	"CONSUMER.LIST":            {reply: "consumer_list_response", tokens: 1, serve: (*request).consumerList},
	"CONSUMER.PAUSE":           {reply: "consumer_pause_response", tokens: 2, mutates: true, serve: (*request).consumerPause},
	"CONSUMER.UNPIN":           {reply: "consumer_unpin_response", tokens: 2, mutates: true, serve: (*request).consumerUnpin},
	"CONSUMER.RESET":           {reply: "consumer_reset_response", tokens: 2, mutates: true, serve: (*request).consumerReset},
	"CONSUMER.LEADER.STEPDOWN": {reply: "consumer_leader_stepdown_response", tokens: 2, serve: (*request).leaderStepdown},
	"CONSUMER.PEER.REMOVE":     {reply: "consumer_remove_peer_response", tokens: 2, serve: (*request).notOffered},
	"CONSUMER.PEER.EVACUATE":   {reply: "consumer_evacuate_peer_response", tokens: 2, serve: (*request).notOffered},

	"META.LEADER.STEPDOWN": {reply: "meta_leader_stepdown_response", system: true, place: ofCatalogue, serve: (*request).metaStepdown},
	"SERVER.REMOVE":        {reply: "meta_server_remove_response", system: true, place: ofCatalogue, serve: (*request).serverRemove},
	"SERVER.EVACUATE":      {reply: "meta_server_evacuate_response", system: true, place: ofCatalogue, serve: (*request).serverEvacuate},

	"ACCOUNT.PURGE":              {reply: "account_purge_response", tokens: 1, system: true, place: ofCatalogue, serve: (*request).accountPurge},
	"ACCOUNT.STREAM.MOVE":        {reply: "stream_update_response", tokens: 2, system: true, place: ofCatalogue, serve: (*request).notOffered},
	"ACCOUNT.STREAM.CANCEL_MOVE": {reply: "stream_update_response", tokens: 2, system: true, place: ofCatalogue, serve: (*request).notOffered},
}
