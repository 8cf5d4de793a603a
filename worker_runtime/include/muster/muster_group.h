// The part of muster.h for frameworks that have process groups of their own: a communicator of ranks that meet by a
// store of the caller's, without a context. Include muster.h.
#ifndef MUSTER_MUSTER_GROUP_H
#define MUSTER_MUSTER_GROUP_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- groups that meet by the caller's store; since version 7 ----

// Keys and values that all members of the group see, and no other group: put the group's name before the keys. The
// library calls these functions in the thread of muster_group_open() and of muster_communicator_split(), one at a time,
// with `argument`, which must outlive the communicators. They must not let a C++ exception out. On an error they write
// a message of at most `capacity` bytes, with a final 0, to `why`.
typedef struct muster_group_store {
    size_t size;
    void* argument;
    muster_status (*set)(void* argument, const char* key, const void* value, size_t value_size, char* why,
                         size_t capacity);
    // The value of a key that exists: passed to `take` together with `to`, once.
    muster_status (*get)(void* argument, const char* key, void (*take)(void* to, const void* value, size_t value_size),
                         void* to, char* why, size_t capacity);
    // Adds to a number that starts at 0, and sets `*sum` to the new value.
    muster_status (*add)(void* argument, const char* key, int64_t delta, int64_t* sum, char* why, size_t capacity);
    // Waits until all keys exist; MUSTER_TIMED_OUT if they do not within `timeout_ms`. 0: answers at once.
    muster_status (*wait)(void* argument, const char* const* keys, size_t key_count, int64_t timeout_ms, char* why,
                          size_t capacity);
} muster_group_store;

typedef struct muster_group_options {
    size_t size;
    const char* name;  // for messages and the flight record, such as "torch/0"; equal on all members
    int rank;
    int group_size;
    // By rank in the group: its rank in the world, for messages. NULL: this group is a world.
    const int* world_ranks;
    const muster_group_store* store;  // copied; may be NULL if `group_size` is 1
    int64_t meeting_timeout_ms;       // until all members have joined; 0: 300,000
    int64_t operation_timeout_ms;     // default deadline of an operation; 0: 300,000
    int transport;                    // the variable MUSTER_TRANSPORT overrides it
} muster_group_options;

// A collective of the members only. The n-th call of a member with one store meets the n-th call of the others. After
// a call that failed, the next calls of all members meet, also of those that did not come to it. In a
// job with a key the members prove that they have it: MUSTER_UNSUPPORTED if this process cannot get it from its agent.
// The group fails when a member dies, and when muster ends the round.
muster_status muster_group_open(const muster_group_options* options, muster_communicator** group);

// ---- messages with tags; since version 7 ----
//
// As muster_send() and muster_receive(). Messages between two ranks arrive in the order of their sends, so a tag
// selects none: sender and receiver compare it, and the communicator fails if it differs.
muster_status muster_send_tagged(muster_communicator* communicator, const void* data, size_t count, int type, int peer,
                                 uint32_t tag, int64_t timeout_ms, muster_work** work);
muster_status muster_receive_tagged(muster_communicator* communicator, void* data, size_t count, int type, int peer,
                                    uint32_t tag, int64_t timeout_ms, muster_work** work);
// Receives from the first rank whose message is there. `*peer`: that rank. Blocks. Not over NCCL.
muster_status muster_receive_any(muster_communicator* communicator, void* data, size_t count, int type, uint32_t tag,
                                 int64_t timeout_ms, int* peer);

// ---- collectives with tags; since version 7 ----
//
// The collectives that the calling thread starts from now on carry `tag`, until the next call; 0 at first. The ranks
// compare it with the rest of the operation, and the communicator fails if it differs. So a caller whose operations
// have a meaning of their own, such as bytes of a type that the library lacks, learns when ranks disagree on it. It
// does not concern messages, which have tags of their own.
void muster_tag_collectives(uint32_t tag);

// ---- memory that ranks of a host use in place; since version 8 ----

// Memory of a pool of this process. In shared memory, all_reduce, reduce, reduce_scatter, all_gather, gather and
// all_to_all whose input lies there on every rank of the host need no copy, in any communicator; of reduce, at the root
// it is the output. Not a collective: every rank allocates when it likes, and as much. The content is undefined, the
// address a multiple of 256. The pool keeps memory that was released for later use; it may hold about twice the most
// that was in use at once. MUSTER_LIMIT_EXCEEDED: the host or this job has too little. A forked child cannot access it,
// and must not release it.
muster_status muster_host_memory_allocate(size_t size_bytes, void** data);
// Thread-safe, and independent of the order of allocations. No operation may be in progress on the memory.
muster_status muster_host_memory_release(void* data);

#ifdef __cplusplus
}
#endif

#endif
