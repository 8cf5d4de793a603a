#include "rendezvous/base/system/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/other_user.h"
#include "tests/support/scratch_folder.h"

using namespace muster;

TEST_CASE("one descriptor has the lock, and is open for writing, without which NFS locks nothing") {
    const test::ScratchFolder folder;
    CHECK_FALSE(open_locked(folder / "lock").valid());
    CHECK(errno == ENOENT);
    auto held = open_locked(folder / "lock", O_CREAT);
    REQUIRE(held.valid());
    CHECK((::fcntl(held.get(), F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK_FALSE(open_locked(folder / "lock", O_CREAT).valid());
    CHECK(errno == EWOULDBLOCK);
    held.reset();
    CHECK(open_locked(folder / "lock").valid());
    std::filesystem::create_symlink(folder / "lock", folder / "link");
    CHECK_FALSE(open_locked(folder / "link").valid());
    CHECK(errno == ELOOP);
}

TEST_CASE("who may only read the file meets its lock, and takes it when it is free") {
    if (!test::may_be_another_user()) return;
    const test::ScratchFolder folder;
    const auto path = folder / "lock";
    auto held = open_locked(path, O_CREAT, 0644);
    REQUIRE(held.valid());
    REQUIRE(::chmod(folder.string().c_str(), 0755) == 0);
    const auto as_nobody = [&path] {
        constexpr uid_t nobody = 65534;
        const auto child = ::fork();
        if (child == 0) {
            if (::setresuid(nobody, nobody, nobody) != 0) ::_exit(255);
            ::_exit(open_locked(path).valid() ? 0 : errno);
        }
        int status = 0;
        return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    };
    CHECK(as_nobody() == EWOULDBLOCK);
    held.reset();
    CHECK(as_nobody() == 0);
}
