// Every operation of the C API, on every rank of a job.
#include <stdint.h>

#include "expect.h"

enum { COUNT = 1000, WORLD_MAX = 8 };

static double sum_of_ranks(int world) {
    return 0.5 * world * (world + 1);
}

static void reduce_all_types(struct job job) {
    const int world = job.place.world_size, mine = job.place.rank + 1;
    const double sum = sum_of_ranks(world);
    const uint16_t one_f16 = 0x3c00, one_bf16 = 0x3f80;
    float f32 = (float)mine;
    double f64 = mine;
    int32_t i32 = mine;
    int64_t i64 = mine;
    uint8_t u8 = (uint8_t)mine;
    uint16_t f16 = one_f16, bf16 = one_bf16;
    GOOD(muster_all_reduce(job.world, &f32, 1, MUSTER_F32, MUSTER_SUM, 0, NULL));
    GOOD(muster_all_reduce(job.world, &f64, 1, MUSTER_F64, MUSTER_AVG, 0, NULL));
    GOOD(muster_all_reduce(job.world, &i32, 1, MUSTER_I32, MUSTER_MIN, 0, NULL));
    GOOD(muster_all_reduce(job.world, &i64, 1, MUSTER_I64, MUSTER_MAX, 0, NULL));
    GOOD(muster_all_reduce(job.world, &u8, 1, MUSTER_U8, MUSTER_SUM, 0, NULL));
    GOOD(muster_all_reduce(job.world, &f16, 1, MUSTER_F16, MUSTER_AVG, 0, NULL));
    GOOD(muster_all_reduce(job.world, &bf16, 1, MUSTER_BF16, MUSTER_MAX, 0, NULL));
    EXPECT(f32 == (float)sum);
    EXPECT(f64 > sum / world - 1e-12 && f64 < sum / world + 1e-12);
    EXPECT(i32 == 1);
    EXPECT(i64 == world);
    EXPECT(u8 == (uint8_t)sum);
    EXPECT(f16 == one_f16);
    EXPECT(bf16 == one_bf16);

    // Rank r counts r times: sum(r (r + 1)) / sum(r). Rank 0 alone would have no weight at all.
    double weighted = mine, expected = 0, weights = 0;
    for (int rank = 0; rank < world; ++rank) {
        expected += (rank + 0.5) * (rank + 1);
        weights += rank + 0.5;
    }
    GOOD(muster_all_reduce_weighted(job.world, &weighted, 1, MUSTER_F64, (float)job.place.rank + 0.5F, 0, NULL));
    EXPECT(weighted > expected / weights - 1e-12 && weighted < expected / weights + 1e-12);
}

// The reductions and types that version 9 added; f64 keeps a factor that no float has.
static void reduce_more(struct job job) {
    const int world = job.place.world_size, rank = job.place.rank;
    int16_t i16 = (int16_t)(-rank - 1);
    uint16_t u16 = (uint16_t)(65535 - rank);
    int8_t i8 = (int8_t)(rank + 1);
    uint32_t u32 = 4000000000U + (uint32_t)rank;
    uint64_t u64 = UINT64_C(1) << (rank + 40);
    int32_t bits = rank == 0 ? 6 : 3;
    double f64 = rank + 1;
    GOOD(muster_all_reduce(job.world, &i16, 1, MUSTER_I16, MUSTER_MIN, 0, NULL));
    GOOD(muster_all_reduce(job.world, &u16, 1, MUSTER_U16, MUSTER_MAX, 0, NULL));
    GOOD(muster_all_reduce(job.world, &i8, 1, MUSTER_I8, MUSTER_PRODUCT, 0, NULL));
    GOOD(muster_all_reduce(job.world, &u32, 1, MUSTER_U32, MUSTER_MAX, 0, NULL));
    GOOD(muster_all_reduce(job.world, &u64, 1, MUSTER_U64, MUSTER_BOR, 0, NULL));
    GOOD(muster_all_reduce(job.world, &f64, 1, MUSTER_F64, MUSTER_PRODUCT, 0, NULL));
    int factorial = 1;
    for (int other = 1; other <= world; ++other) factorial *= other;
    EXPECT(i16 == -world);
    EXPECT(u16 == 65535);
    EXPECT(i8 == (int8_t)factorial);
    EXPECT(u32 == 4000000000U + (uint32_t)world - 1);
    EXPECT(u64 == ((UINT64_C(1) << world) - 1) << 40);
    EXPECT(f64 == factorial);
    int32_t all = bits, odd = bits;
    GOOD(muster_all_reduce(job.world, &all, 1, MUSTER_I32, MUSTER_BAND, 0, NULL));
    GOOD(muster_all_reduce(job.world, &odd, 1, MUSTER_I32, MUSTER_BXOR, 0, NULL));
    EXPECT(all == (world == 1 ? 6 : 2));
    EXPECT(odd == (world % 2 == 1 ? 6 : 6 ^ 3));

    double scaled = 3, pieces[WORLD_MAX], piece = 0;
    for (int i = 0; i < world; ++i) pieces[i] = 3 * (i + 1);
    GOOD(muster_all_reduce_premul(job.world, &scaled, 1, MUSTER_F64, rank == 0 ? 1.0 / 3 : -2, 0, NULL));
    GOOD(muster_reduce_scatter_premul(job.world, pieces, &piece, 1, MUSTER_F64, rank == 0 ? 1.0 / 3 : -2, 0, NULL));
    double three = 3, total = 0;
    GOOD(muster_reduce_premul(job.world, &three, rank == 0 ? &total : NULL, 1, MUSTER_F64, rank == 0 ? 1.0 / 3 : -2, 0,
                              0, NULL));
    EXPECT(total == (rank == 0 ? scaled : 0) && three == 3);
    EXPECT(scaled == 1.0 - 6 * (world - 1));
    EXPECT(piece == (1.0 - 6 * (world - 1)) * (rank + 1));
    EXPECT(pieces[0] == 3);
}

static void move_pieces(struct job job) {
    const int world = job.place.world_size, rank = job.place.rank;
    int32_t all[WORLD_MAX * COUNT], other[WORLD_MAX * COUNT], piece[COUNT];
    for (int i = 0; i < COUNT; ++i) piece[i] = 1000 * rank + i;
    GOOD(muster_all_gather(job.world, piece, all, COUNT, MUSTER_I32, 0, NULL));
    for (int i = 0; i < world * COUNT; ++i) EXPECT(all[i] == 1000 * (i / COUNT) + i % COUNT);

    GOOD(muster_reduce_scatter(job.world, all, piece, COUNT, MUSTER_I32, MUSTER_SUM, 0, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(piece[i] == world * (1000 * rank + i));

    for (int i = 0; i < world * COUNT; ++i) all[i] = 100 * rank + i / COUNT;
    GOOD(muster_all_to_all(job.world, all, other, COUNT, MUSTER_I32, 0, NULL));
    for (int i = 0; i < world * COUNT; ++i) EXPECT(other[i] == 100 * (i / COUNT) + rank);

    const int root = world - 1;
    for (int i = 0; i < COUNT; ++i) piece[i] = rank == root ? 7 * i : -1;
    GOOD(muster_broadcast(job.world, piece, COUNT, MUSTER_I32, root, 0, NULL));
    for (int i = 0; i < COUNT; ++i) EXPECT(piece[i] == 7 * i);
}

static void move_with_a_root(struct job job) {
    const int world = job.place.world_size, rank = job.place.rank, root = world - 1;
    int32_t all[WORLD_MAX * COUNT], piece[COUNT];
    for (int i = 0; i < COUNT; ++i) piece[i] = 1000 * rank + i;
    GOOD(muster_gather(job.world, piece, rank == root ? all : NULL, COUNT, MUSTER_I32, root, 0, NULL));
    for (int i = 0; rank == root && i < world * COUNT; ++i) {
        EXPECT(all[i] == 1000 * (i / COUNT) + i % COUNT);
        all[i] *= 3;
    }
    muster_work* work = NULL;
    GOOD(muster_scatter(job.world, rank == root ? all : NULL, piece, COUNT, MUSTER_I32, root, 0, &work));
    GOOD(muster_work_wait(work));
    GOOD(muster_work_release(work));
    for (int i = 0; i < COUNT; ++i) EXPECT(piece[i] == 3 * (1000 * rank + i));

    double sum = -1, own = rank + 1;
    GOOD(muster_reduce(job.world, &own, rank == 0 ? &sum : NULL, 1, MUSTER_F64, MUSTER_SUM, 0, 0, NULL));
    EXPECT(own == rank + 1);
    EXPECT(sum == (rank == 0 ? sum_of_ranks(world) : -1));
    GOOD(muster_reduce(job.world, &own, &own, 1, MUSTER_F64, MUSTER_MAX, root, 0, NULL));
    EXPECT(own == rank + 1 || rank == root);
}

// Rank r sends s + 1 elements to rank s, in reverse order, and expects r + 1 of each, with a gap between.
static void move_uneven_parts(struct job job) {
    const int world = job.place.world_size, rank = job.place.rank;
    int64_t input[100], output[100];
    size_t sent[WORLD_MAX], offsets[WORLD_MAX], expected[WORLD_MAX], places[WORLD_MAX];
    size_t end = 0;
    for (int i = 0; i < 100; ++i) output[i] = -1;
    for (int to = world - 1; to >= 0; --to) {
        sent[to] = (size_t)to + 1;
        offsets[to] = end;
        for (size_t i = 0; i < sent[to]; ++i) input[end++] = 100 * rank + to;
    }
    for (int from = 0; from < world; ++from) {
        expected[from] = (size_t)rank + 1;
        places[from] = (size_t)from * ((size_t)rank + 2);
    }
    muster_parts parts = {.size = sizeof parts,
                          .sent_counts = sent,
                          .sent_offsets = offsets,
                          .expected_counts = expected,
                          .expected_offsets = places};
    GOOD(muster_all_to_all_uneven(job.world, input, output, MUSTER_I64, &parts, 0, NULL));
    for (int i = 0; i < world * (rank + 2); ++i) {
        const int from = i / (rank + 2);
        EXPECT(output[i] == (i % (rank + 2) == rank + 1 ? -1 : 100 * from + rank));
    }
    parts.expected_offsets = NULL;
    muster_work* work = NULL;
    GOOD(muster_all_to_all_uneven(job.world, input, output, MUSTER_I64, &parts, 0, &work));
    for (int to = 0; to < world; ++to) sent[to] = offsets[to] = 99;  // the counts were copied
    GOOD(muster_work_wait(work));
    GOOD(muster_work_release(work));
    for (int i = 0; i < world * (rank + 1); ++i) EXPECT(output[i] == 100 * (i / (rank + 1)) + rank);
}

// A ring: everybody sends to the next rank and receives from the one before.
static void send_around(struct job job) {
    const int world = job.place.world_size, rank = job.place.rank;
    if (world == 1) return;
    int64_t out = rank, in = -1;
    muster_work *sent = NULL, *received = NULL;
    GOOD(muster_send(job.world, &out, 1, MUSTER_I64, (rank + 1) % world, 0, &sent));
    GOOD(muster_receive(job.world, &in, 1, MUSTER_I64, (rank + world - 1) % world, 0, &received));
    GOOD(muster_work_wait(received));
    GOOD(muster_work_wait(sent));
    EXPECT(in == (rank + world - 1) % world);
    GOOD(muster_work_release(sent));
    GOOD(muster_work_release(received));
}

static void work_in_the_background(struct job job) {
    muster_memory* memory = NULL;
    void* data = NULL;
    size_t size_bytes = 0;
    GOOD(muster_allocate(job.world, COUNT * sizeof(float), &memory));
    GOOD(muster_memory_data(memory, &data, &size_bytes));
    EXPECT(size_bytes >= COUNT * sizeof(float));
    float* const values = data;
    for (int i = 0; i < COUNT; ++i) {
        EXPECT(values[i] == 0);
        values[i] = (float)i;
    }
    muster_work *reduced = NULL, *met = NULL;
    GOOD(muster_all_reduce(job.world, values, COUNT, MUSTER_F32, MUSTER_SUM, 60000, &reduced));
    GOOD(muster_barrier(job.world, 60000, &met));
    GOOD(muster_work_wait(met));
    int done = 0;
    GOOD(muster_work_done(reduced, &done));
    EXPECT(done == 1);  // the barrier came after it
    GOOD(muster_work_wait(reduced));
    int64_t took = -1;
    GOOD(muster_work_took(reduced, &took));
    EXPECT(took > 0);
    for (int i = 0; i < COUNT; ++i) EXPECT(values[i] == (float)(i * job.place.world_size));
    GOOD(muster_work_release(reduced));
    GOOD(muster_work_release(met));
    GOOD(muster_memory_release(memory));
}

// Even and odd ranks in groups of their own, in reverse order; the last rank in none.
static void split_up(struct job job) {
    const int world = job.place.world_size, rank = job.place.rank;
    const int takes_part = world == 1 || rank != world - 1;
    muster_communicator* group = NULL;
    GOOD(muster_communicator_split(job.world, takes_part ? rank % 2 : -1, -rank, &group));
    EXPECT((group != NULL) == takes_part);
    if (!takes_part) return;
    int size = 0, place = -1;
    double sum = rank, expected = 0;
    int members = 0, before = 0;
    for (int other = 0; other < (world == 1 ? 1 : world - 1); ++other) {
        if (other % 2 != rank % 2) continue;
        ++members;
        before += other > rank;
        expected += other;
    }
    GOOD(muster_communicator_size(group, &size));
    GOOD(muster_communicator_rank(group, &place));
    EXPECT(size == members && place == before);
    GOOD(muster_all_reduce(group, &sum, 1, MUSTER_F64, MUSTER_SUM, 0, NULL));
    EXPECT(sum == expected);
    GOOD(muster_communicator_release(group));
}

int main(void) {
    const struct job job = open_job();
    EXPECT(job.place.world_size <= WORLD_MAX);
    EXPECT(muster_api_version() >= MUSTER_API_VERSION);
    EXPECT(job.place.rank >= 0 && job.place.rank < job.place.world_size);
    EXPECT(job.place.device == job.place.local_rank);
    reduce_all_types(job);
    reduce_more(job);
    move_pieces(job);
    move_with_a_root(job);
    move_uneven_parts(job);
    send_around(job);
    work_in_the_background(job);
    split_up(job);
    GOOD(muster_communicator_status(job.world));
    return close_job(job);
}
