module contender

go 1.24

require (
	distlock v0.0.0
	github.com/bsm/redislock v0.9.4
	github.com/google/uuid v1.6.0
	github.com/redis/go-redis/v9 v9.17.3
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	golang.org/x/sync v0.12.0 // indirect
)

replace distlock => ../
