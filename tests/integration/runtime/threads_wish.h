// The number of threads of a rank, for tests.
#pragma once

#include <stdlib.h>

#include <string>

namespace muster::test {

/// Sets MUSTER_COLLECTIVE_THREADS for groups that are made from now on.
struct ThreadsWish {
    explicit ThreadsWish(const std::string& wish) { ::setenv("MUSTER_COLLECTIVE_THREADS", wish.c_str(), 1); }
    ~ThreadsWish() { ::unsetenv("MUSTER_COLLECTIVE_THREADS"); }
    ThreadsWish(const ThreadsWish&) = delete;
    ThreadsWish& operator=(const ThreadsWish&) = delete;
};

}  // namespace muster::test
