#include "rendezvous/state/kept/check_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>
#include <variant>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/connect/resolver.h"
#include "rendezvous/state/etcd/etcd_protocol.h"
#include "rendezvous/state/etcd/http_caller.h"
#include "rendezvous/state/kept/open_state.h"
#include "rendezvous/state/sqlite/sqlite_file.h"

namespace muster::rendezvous {

namespace {

using Notes = std::vector<std::string>;

constexpr Duration answer_max = 5s;

Result<void> check_access(const std::string& path, int rights, std::string_view advice) {
    if (::faccessat(AT_FDCWD, path.c_str(), rights, AT_EACCESS) == 0) return {};
    auto error = error_from_errno(errno, path);
    error.context += cat("; ", advice);
    return error;
}

/// A big-endian number in the header of an SQLite file.
std::uint32_t number_at(const std::array<unsigned char, 100>& header, std::size_t at) {
    return std::uint32_t{header[at]} << 24 | std::uint32_t{header[at + 1]} << 16 | std::uint32_t{header[at + 2]} << 8 |
           header[at + 3];
}

/// Reads only the header (sqlite.org/fileformat2.html, 1.3), because a running daemon holds SQLite's lock.
Result<void> check_header(const std::string& path) {
    constexpr std::string_view magic("SQLite format 3\0", 16);
    constexpr std::size_t page_count_at = 28, version_at = 60, application_at = 68;
    constexpr std::string_view advice = "; name another file, or move this one away";
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<unsigned char, 100> header{};
    const auto got = ::read(file.get(), header.data(), header.size());
    if (got < 0) return error_from_errno(errno, path);
    if (got == 0) return {};  // just created
    if (static_cast<std::size_t>(got) < header.size() || std::memcmp(header.data(), magic.data(), magic.size()) != 0)
        return Error{Errc::bad_frame, cat(path,
                                          " is not an SQLite file, or is damaged: musterd would rename it and "
                                          "start with an empty state",
                                          advice)};
    const auto application = number_at(header, application_at);
    if (application == 0 && number_at(header, page_count_at) <= 1) return {};  // nothing is in it yet
    if (application != SqliteFile::application_id)
        return Error{Errc::invalid_argument, cat(path, " is the database of another program", advice)};
    const auto version = number_at(header, version_at);
    if (version == SqliteFile::layout_version) return {};
    return Error{Errc::bad_frame,
                 cat(path, " has version ", version, "; this musterd supports version ", SqliteFile::layout_version,
                     " and would rename the file and start with an empty state; "
                     "run the musterd that wrote it until its jobs are over, or move the file away")};
}

Result<void> check_folder(const std::string& folder) {
    struct stat facts {};
    if (::stat(folder.c_str(), &facts) != 0) {
        if (errno != ENOENT) return error_from_errno(errno, folder);
        return Error{Errc::not_found,
                     cat("the directory ", folder, " does not exist; create it for the user that runs musterd")};
    }
    if (!S_ISDIR(facts.st_mode))
        return Error{Errc::invalid_argument, cat(folder, " is not a directory; name a file in one")};
    return check_access(folder, W_OK | X_OK, "musterd writes its state there: give its user write permission");
}

Result<void> check_file(const std::string& path) {
    const auto folder = std::filesystem::path(path).parent_path().string();
    if (auto checked = check_folder(folder.empty() ? "." : folder); !checked) return checked;
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) {
        if (errno != ENOENT) return error_from_errno(errno, path);
        return {};
    }
    if (!S_ISREG(facts.st_mode))
        return Error{Errc::invalid_argument,
                     cat(path, " is not a regular file; name a file, which need not exist yet")};
    if (auto allowed = check_access(path, R_OK | W_OK, "give its ownership to the user that runs musterd"); !allowed)
        return allowed;
    return check_header(path);
}

/// Reads one key of our prefix from each member of etcd.
class EtcdQuestion {
  public:
    explicit EtcdQuestion(const EtcdPlace& place) : place_(place), failures_(place.members.size()) {}

    Result<Notes> ask() {
        caller_ = MUSTER_TRY(HttpCaller::open(io_, place_.members, place_.tls));
        for (std::size_t i = 0; i < place_.members.size(); ++i) {
            failures_[i] = Error{Errc::timed_out, cat(describe(place_.members[i]), ": no answer")};
            if (place_.login.user.empty())
                read(i, {});
            else
                log_in(i);
        }
        io_.run_for(2 * answer_max);
        return verdict();
    }

  private:
    void call(std::size_t member, const EtcdRequest& request, const std::string& token,
              std::function<void(Result<EtcdAnswer>)> then) {
        auto call = encode(request);
        caller_->post({member, std::move(call.path), std::move(call.body), token}, answer_max,
                      [this, member, request, then = std::move(then)](Result<HttpResponse> response) {
                          if (!response) return then(response.error());
                          auto answer = decode_answer(request, response->status, response->body);
                          if (answer) return then(std::move(answer));
                          auto error = with_context(answer.error(), describe(place_.members[member]));
                          if (says_no(error)) error.context += advice();
                          then(std::move(error));
                      });
    }
    void log_in(std::size_t member) {
        call(member, Authenticate{place_.login.user, place_.login.password}, {},
             [this, member](const Result<EtcdAnswer>& answer) {
                 if (answer) return read(member, std::get<TokenReply>(*answer).token);
                 if (answer.error().code == Errc::unsupported) return read(member, {});  // etcd has no users
                 failures_[member] = answer.error();
             });
    }
    void read(std::size_t member, const std::string& token) {
        call(member, ReadKeys{.key = place_.prefix, .end = range_end(place_.prefix), .limit = 1, .revision = 0}, token,
             [this, member](const Result<EtcdAnswer>& answer) {
                 failures_[member] = answer ? std::nullopt : std::optional(answer.error());
             });
    }

    static bool says_no(const Error& error) {
        return error.code == Errc::refused || error.code == Errc::permission_denied;
    }
    [[nodiscard]] std::string_view advice() const {
        return place_.login.user.empty()
                   ? "; if etcd requires a user, set MUSTER_ETCD_LOGIN_FILE to a file, mode 0600, with USER:PASSWORD"
                   : "; the user of MUSTER_ETCD_LOGIN_FILE needs permission to read and write below the prefix";
    }

    [[nodiscard]] Result<Notes> verdict() const {
        Notes silent;
        for (const auto& failure : failures_) {
            if (!failure) continue;
            if (says_no(*failure)) return *failure;
            silent.push_back(failure->context);
        }
        if (silent.size() == failures_.size())
            return Error{Errc::unreachable, cat("no etcd member answers (", join(silent, "; "),
                                                "); check the addresses, that etcd runs there, and --etcd-protocol")};
        for (auto& one : silent) one = cat("one etcd member does not answer, the others do: ", one);
        return silent;
    }

    const EtcdPlace& place_;
    boost::asio::io_context io_{1};
    std::vector<std::optional<Error>> failures_;
    std::unique_ptr<HttpCaller> caller_;
};

}  // namespace

Result<Endpoint> parse_advertised(std::string_view text) {
    const auto wrong = [&](std::string_view why) {
        return Error{Errc::invalid_argument,
                     cat("got '", text, "', ", why, "; accepted are HOST:PORT and [A,B]:PORT (addresses of one host)")};
    };
    const auto endpoint = parse_endpoint(text, 0);
    if (!endpoint) return wrong("not an endpoint");
    if (endpoint->port == 0) return wrong("the port is missing");
    const auto addresses = split(endpoint->host, ',');
    for (const auto one : addresses) {
        const auto numeric = SocketAddress::from_numeric(std::string(one), endpoint->port);
        if (!numeric && (addresses.size() > 1 || one.find(':') != std::string_view::npos))
            return wrong(cat("'", one, "' is not a numeric address"));
        if (numeric && numeric->is_any()) return wrong(cat("'", one, "' means all addresses and cannot be reached"));
    }
    return *endpoint;
}

Result<Notes> check_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login) {
    const auto place = MUSTER_TRY(parse_state(where, tls, login));
    if (const auto* path = std::get_if<std::filesystem::path>(&place)) {
        MUSTER_TRY(check_file(path->string()));
    } else if (const auto* etcd = std::get_if<EtcdPlace>(&place)) {
        return EtcdQuestion(*etcd).ask();
    }
    return Notes{};
}

Result<Notes> check_advertised(std::string_view text, const std::string& state) {
    const auto endpoint = MUSTER_TRY(parse_advertised(text));
    if (!state.starts_with("etcd://"))
        return Notes{cat("--advertise has no effect with --state ", state,
                         ": it applies to daemons that share their state in etcd")};
    boost::asio::io_context io{1};
    Resolver resolver(io);
    std::optional<Result<Resolver::Addresses>> found;
    resolver.resolve(endpoint, [&](Result<Resolver::Addresses> answer) {
        found = std::move(answer);
        io.stop();
    });
    // The lookup runs on its own thread, so this timer keeps the loop running.
    boost::asio::steady_timer limit(io, answer_max);
    limit.async_wait([](const boost::system::error_code&) {});
    io.run();
    if (!found || !*found)
        return Error{Errc::unreachable,
                     cat("cannot resolve the name ", endpoint.host, " on this host",
                         found ? cat(" (", found->error().context, ")") : cat(" within ", describe(answer_max)),
                         "; agents receive the name unchanged: use an address, or add the name to DNS or /etc/hosts")};
    for (const auto& one : **found)
        if (!one.address().is_loopback()) return Notes{};
    return Notes{cat(text, " is a loopback address: agents on other hosts cannot reach it")};
}

}  // namespace muster::rendezvous
