#include "rendezvous/base/error.h"

#include <cerrno>

#include "tests/support/catch.h"

using namespace muster;

TEST_CASE("an errno keeps its meaning and its text") {
    const Error error = error_from_errno(EADDRINUSE, "bind [::]:29400");
    CHECK(error.code == Errc::already_exists);
    CHECK(error.context == "bind [::]:29400: Address already in use");
}

TEST_CASE("context is put in front") {
    CHECK(describe(with_context(Error{Errc::timed_out, "no answer within 5 s"}, "join job 7")) ==
          "timed_out: join job 7: no answer within 5 s");
}
