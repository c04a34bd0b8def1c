"""zkms beside what its user would choose otherwise, in one run with the same work: `make peers`.

peers        who takes part, how durable it is              servers      starts and stops theirs
comparison   the runs                                       table        plot
redis_streams   rabbitmq   nats_jetstream   locking_queue   each peer used as well as its client library allows

The work: a Python publisher, S Python subscribers in two processes that each receive and ack every message, 100 bytes.
The processes and the clock are those of `zkms bench`.
"""
