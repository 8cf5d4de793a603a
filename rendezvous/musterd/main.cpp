// musterd: the rendezvous daemon as a program. This file turns options into a DaemonConfig; servers/daemon.h has the
// daemon.
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/system/build_facts.h"
#include "rendezvous/base/system/standard_streams.h"
#include "rendezvous/base/system/start_up_signals.h"
#include "rendezvous/base/text/nearest.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/musterd/daemon_events.h"
#include "rendezvous/musterd/options.h"
#include "rendezvous/secret/find_secret.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/servers/daemon.h"
#include "rendezvous/servers/secret_reload.h"
#include "rendezvous/servers/service.h"
#include "rendezvous/state/kept/check_state.h"
#include "rendezvous/state/kept/open_state.h"

namespace {

namespace options = boost::program_options;
using namespace muster;

constexpr int exit_usage = 2;
constexpr int exit_internal = 70;
constexpr int exit_unavailable = 78;  // configuration: no port, address or state, or too few open files

bool is_any_address(std::string_view numeric) {
    return numeric == "::" || numeric == "0.0.0.0";
}

/// The endpoint that agents are sent to. Numeric addresses, because other hosts may not resolve this host's name.
Endpoint own_place(const std::string& bound, std::uint16_t port) {
    if (!is_any_address(bound)) return {bound, port};
    auto addresses = own_addresses();
    const bool has_outer = !is_loopback(addresses.front());
    std::erase_if(addresses, [&](const auto& one) { return has_outer && is_loopback(one); });
    return {address_list(addresses), port};
}

/// Returns `exit_code`.
int print_error(std::string_view line, int exit_code = exit_usage) {
    write_log_on_thread();
    print_notice(cat("musterd: ", line, "\n"));
    return exit_code;
}

/// Prints to stdout; fails when stdout does not take all of `text`.
int answer(std::string_view text) {
    if (std::cout << text << std::flush) return 0;
    return print_error(cat("cannot write to stdout: ", errno_text(errno)), exit_internal);
}

struct StateOptions {
    std::string place;  ///< --state
    std::string self;   ///< --advertise; empty: --bind or this host's addresses
    std::optional<rendezvous::TlsFiles> tls;
    rendezvous::EtcdLogin login;
};

/// Opens the state and loads what an earlier daemon kept there.
Result<std::unique_ptr<rendezvous::StateStore>> open_state(const StateOptions& where, rendezvous::EventLoop& loop,
                                                           rendezvous::DaemonConfig& config) {
    auto opened =
        rendezvous::open_state(where.place, where.tls, where.login, rendezvous::record_keys(config.keys, {}),
                               where.self, [&loop](std::function<void()> work) { loop.post(std::move(work)); });
    if (!opened) return opened.error();
    config.server.keep_records = opened->keeps_records;
    config.server.to_wall_clock =
        std::chrono::system_clock::now().time_since_epoch() - std::chrono::steady_clock::now().time_since_epoch();
    config.kept = std::move(opened->kept);
    if (opened->keeps_records && !opened->store->starts_as_follower())
        log(LogLevel::info, "state in ", where.place, ": ", config.kept.jobs.size(),
            config.kept.jobs.size() == 1 ? " job resumed" : " jobs resumed");
    return std::move(opened->store);
}

using Listeners = std::vector<std::unique_ptr<rendezvous::Listener>>;

/// The sockets that the service manager passed, else one opened here.
Result<Listeners> open_listeners(const rendezvous::ListenConfig& wanted,
                                 const rendezvous::ServiceEnvironment& service) {
    Listeners listeners;
    int fd = rendezvous::first_given_socket;
    for (const auto& name : service.listens) {
        auto adopted = rendezvous::Listener::adopt(fd++, wanted);
        if (!adopted) return with_context(adopted.error(), cat("the service manager's socket ", name));
        log(LogLevel::info, "the service manager passed the socket ",
            describe(Endpoint{(*adopted)->address(), (*adopted)->port()}), " (", name, ")");
        listeners.push_back(*std::move(adopted));
    }
    if (!listeners.empty()) return listeners;
    listeners.push_back(MUSTER_TRY(rendezvous::Listener::open(wanted)));
    return listeners;
}

std::string status_of(const rendezvous::Daemon& daemon) {
    const auto agents = daemon.agent_count();
    const auto trouble = daemon.state_trouble();
    return cat("serving ", agents, agents == 1 ? " agent on " : " agents on ", daemon.address(),
               trouble.empty() ? "" : "; ", trouble);
}

int exit_code_of(const Error& error) {
    return error.code == Errc::invalid_argument ? exit_usage : exit_unavailable;
}

/// Runs --check. `named` gives an option's name for messages.
int check(const StateOptions& where, const std::function<std::string(const char*)>& named) {
    const auto report = [&](const char* option, const Result<std::vector<std::string>>& checked) {
        if (!checked)
            return print_error(cat(named(option), ": ", checked.error().context), exit_code_of(checked.error()));
        for (const auto& note : *checked) print_error(cat("note: ", note));
        flush_log(last_flush_max);  // before the answer on stdout
        return 0;
    };
    if (const int wrong = report("state", rendezvous::check_state(where.place, where.tls, where.login)); wrong != 0)
        return wrong;
    if (!where.self.empty())
        if (const int wrong = report("advertise", rendezvous::check_advertised(where.self, where.place)); wrong != 0)
            return wrong;
    return answer("musterd: the options are valid\n");
}

/// Why these listeners must not serve without a key; empty: they may.
std::string open_to_strangers(const Listeners& listeners) {
    for (const auto& listener : listeners)
        if (!is_loopback(listener->address()))
            return cat("it would serve other hosts at ",
                       is_any_address(listener->address()) ? std::string("all addresses") : listener->address(),
                       " without a secret, and every host that reaches its port could run programs in the jobs. Make a "
                       "secret with muster key, or name one (MUSTER_SECRET_FILE; under systemd "
                       "LoadCredential=muster.key:PATH). --bind 127.0.0.1 serves this host alone; --insecure "
                       "(MUSTER_INSECURE=1) serves everyone");
    return {};
}

/// Raises the limit of open files as far as the host allows, and prints an error if a daemon cannot work with it.
bool has_enough_files() {
    const auto limit = raise_open_files_limit();
    if (limit >= descriptors_kept) return true;
    print_error(cat("the limit of open files is ", limit, " (RLIMIT_NOFILE), but a daemon needs at least ",
                    descriptors_kept, ": run `ulimit -n 65536` as root in the shell that starts musterd, or write ",
                    "LimitNOFILE=65536 into its unit"));
    return false;
}

/// Of --check: where it would listen, at a port that is free.
int check_access(rendezvous::DaemonConfig& config, const rendezvous::ServiceEnvironment& service, bool insecure) {
    if (!has_enough_files()) return exit_unavailable;
    config.listen.ports = {};
    const auto listeners = open_listeners(config.listen, service);
    const auto why = listeners ? open_to_strangers(*listeners) : listeners.error().context;
    if (listeners && (config.keys || insecure || why.empty())) return 0;
    return print_error(cat(why, listeners && service.listens.empty()
                                    ? ". Where systemd holds the port, ListenStream= of musterd.socket counts instead"
                                    : ""),
                       exit_unavailable);
}

std::string_view authentication(const rendezvous::DaemonConfig& config, const Listeners& listeners) {
    if (config.keys) return "key";
    return config.listen.local_users == LocalUsers::own && open_to_strangers(listeners).empty() ? "local users"
                                                                                                : "none";
}

/// Empty: it is not set.
std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

using Secrets = std::vector<rendezvous::Secret>;

Result<Secrets> find_secrets() {
    return rendezvous::find_accepted_secrets(variable);
}

struct Serving {
    StateOptions state;
    bool insecure = false;             ///< --insecure
    std::shared_ptr<Secrets> secrets;  ///< empty: there is none
    std::string events;                ///< --events
};

/// Who sees the port open may tell that the secret has changed. It waits until the state is open, and ends nothing.
void hold_hang_up() {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int serve(rendezvous::DaemonConfig config, Serving options, const rendezvous::ServiceEnvironment& service) {
    auto& where = options.state;
    // A reader of the log that stalls or exits must not stop the daemon.
    write_log_on_thread();
    std::signal(SIGPIPE, SIG_IGN);
    if (!has_enough_files()) return exit_unavailable;
    config.limits.connections_max = connections_allowed();
    if (options.secrets) hold_hang_up();
    const auto events = rendezvous::DaemonEvents::open(options.events);
    if (!events) return print_error(cat("--events: ", events.error().context), exit_unavailable);
    config.on_event = (*events)->sink();
    rendezvous::EventLoop loop;
    if (const auto& opened = loop.opened(); !opened) return print_error(opened.error().context, exit_unavailable);
    auto listeners = open_listeners(config.listen, service);
    if (!listeners) return print_error(listeners.error().context, exit_unavailable);
    if (const auto why = open_to_strangers(*listeners); !config.keys && !why.empty()) {
        if (!options.insecure) return print_error(why, exit_unavailable);
        log(LogLevel::warning,
            "--insecure: every host that reaches this port can join the jobs, and so run programs as their users; a "
            "secret (muster key) keeps strangers out");
    }
    config.server.authentication = authentication(config, *listeners);
    auto first = std::move(listeners->front());
    listeners->erase(listeners->begin());
    if (where.self.empty()) where.self = describe(own_place(first->address(), first->port()));
    auto state = open_state(where, loop, config);
    if (!state) return print_error(cat("--state: ", state.error().context), exit_code_of(state.error()));
    // Not sooner: a name service or a disk that does not answer must not hold up the end.
    rendezvous::SecretReload reload(loop, std::move(options.secrets), find_secrets);
    rendezvous::StopOnSignal signals(loop, [&reload] { reload.start(); });
    end_start_up_signals();
    const auto daemon =
        rendezvous::Daemon::open(loop, std::move(config), *std::move(state), std::move(first), *std::move(listeners));
    if (!daemon) return print_error(daemon.error().context, exit_unavailable);
    ConsoleWriter out(STDOUT_FILENO, "stdout");  // whose reader may be slow, too
    const auto listening = cat("musterd listening on ", (*daemon)->address());
    out.add(cat(listening, "\n"));
    (*events)->tell(EventKind::daemon_started, listening);
    const rendezvous::ServiceReport report(loop, service, [&daemon] { return status_of(**daemon); });
    loop.run();
    rendezvous::StopOnSignal::end_at_next(1s);
    log(LogLevel::info, "stopped by ", signals.signal() == SIGINT ? "SIGINT" : "SIGTERM");
    return 0;
}

/// The secret, and who may see the status pages. An exit code where the program ends here.
std::optional<int> take_secret(const options::variables_map& given, rendezvous::DaemonConfig& config,
                               std::shared_ptr<Secrets>& secrets) {
    auto found = find_secrets();
    if (!found) return print_error(found.error().context, exit_unavailable);
    if (!found->empty()) {
        secrets = std::make_shared<Secrets>(*std::move(found));
        config.keys = rendezvous::job_keys(secrets);
    }
    for (const auto& [option, token] : {std::pair("status-token", &rendezvous::status_token),
                                        std::pair("metrics-token", &rendezvous::metrics_token)}) {
        if (given.count(option) == 0) continue;
        if (config.keys) return answer(cat(token(config.keys({}).front()), "\n"));
        return print_error(cat("--", option, ": there is no secret, so no token is asked; set MUSTER_SECRET_FILE"));
    }
    for (const auto name : split(given["status-host"].as<std::string>(), ','))
        if (!trim(name).empty()) config.status_hosts.emplace_back(trim(name));
    config.has_page = given.count("no-web") == 0;
    return std::nullopt;
}

int run(const options::variables_map& given, const rendezvous::OptionPlaces& places) {
    rendezvous::DaemonConfig config;
    const auto named = [&places](const char* option) {
        const auto place = places.find(option);
        return place == places.end() ? cat("--", option) : place->second;
    };
    auto service = rendezvous::service_environment([](const char* name) { return std::getenv(name); }, ::getpid());
    if (!service) return print_error(service.error().context);
    config.listen.address = given["bind"].as<std::string>();
    const auto ports = parse_port_range(given["port"].as<std::string>());
    if (!ports) return print_error(cat(named("port"), ": ", ports.error().context));
    config.listen.ports = *ports;
    const auto& level_name = given["log-level"].as<std::string>();
    LogLevel level{};
    if (!parse_log_level(level_name, level))
        return print_error(
            cat(named("log-level"), ": got '", level_name, "'; accepted is debug, info, warning or error"));
    set_log_level(level);
    set_log_name("musterd");
    const char* journal = std::getenv("JOURNAL_STREAM");
    if (journal != nullptr && given.count("check") == 0) open_journal("musterd", journal);
    std::shared_ptr<Secrets> secrets;
    if (const auto over = take_secret(given, config, secrets)) return *over;
    const auto local_users = given.count("local-users") > 0 ? given["local-users"].as<std::string>() : "";
    if (!local_users.empty() && local_users != "own" && local_users != "all")
        return print_error(cat(named("local-users"), ": got '", local_users, "'; accepted is own or all"));
    if (local_users == "all" || (local_users.empty() && config.keys)) config.listen.local_users = LocalUsers::all;
    if (given.count("allow-from") > 0) {
        auto sources = AddressSet::parse(given["allow-from"].as<std::string>());
        if (!sources) return print_error(cat(named("allow-from"), ": ", sources.error().context));
        config.listen.sources = muster::allow_from(*std::move(sources));
    }
    config.server.allow_faults = given.count("allow-faults") > 0;
    config.server.secret_seed = rendezvous::random_nonce();
    // A daemon that has just started does not know the running rounds yet: it waits one lease before it seals.
    config.server.start_hold =
        given.count("first-start") > 0 ? rendezvous::StartHold::until_full : rendezvous::StartHold::always;
    StateOptions state;
    state.place = given["state"].as<std::string>();
    if (given["state"].defaulted() && !service->state_directory.empty())
        state.place = cat("sqlite:", service->state_directory, "/musterd.sqlite");
    if (given.count("advertise") > 0) state.self = given["advertise"].as<std::string>();
    if (!state.self.empty())
        if (const auto place = rendezvous::parse_advertised(state.self); !place)
            return print_error(cat(named("advertise"), ": ", place.error().context));
    auto tls = rendezvous::tls_files(given["etcd-protocol"].as<std::string>(),
                                     {given["etcd-cacert"].as<std::string>(), given["etcd-cert"].as<std::string>(),
                                      given["etcd-key"].as<std::string>()});
    if (!tls) return print_error(cat("--etcd-protocol, --etcd-cacert, --etcd-cert, --etcd-key: ", tls.error().context));
    state.tls = *std::move(tls);
    auto login = rendezvous::read_etcd_login(variable("MUSTER_ETCD_LOGIN_FILE"));
    if (!login) return print_error(cat("MUSTER_ETCD_LOGIN_FILE: ", login.error().context));
    state.login = *std::move(login);
    const bool is_insecure = given.count("insecure") > 0 || variable("MUSTER_INSECURE") == "1";
    if (given.count("check") > 0) {
        if (const int wrong = check_access(config, *service, is_insecure); wrong != 0) return wrong;
        return check(state, named);
    }
    std::vector<std::string> idle;
    for (const char* option : {"bind", "port"})
        if (!service->listens.empty() && !given[option].defaulted()) idle.push_back(named(option));
    if (!idle.empty())
        log(LogLevel::warning, join(idle, " and "),
            ": ignored, because the service manager passes the sockets; set ListenStream= in a drop-in of "
            "musterd.socket instead");
    return serve(std::move(config),
                 {std::move(state), is_insecure, std::move(secrets), given["events"].as<std::string>()}, *service);
}

constexpr StartUpAnswer start_up_answer{
    .program = "musterd",
    .sentence = "no job was served. To serve jobs, start musterd again.",
    .end = StartUpEnd::by_signal,
};

[[gnu::constructor(101)]] void answer_first_signals() {
    answer_start_up_signals(start_up_answer);
}

int start(int argc, char** argv) {
    const auto known = rendezvous::describe_options();
    options::variables_map given;
    try {
        const auto line = options::command_line_parser(argc, argv).options(known).run();
        for (const auto& word : line.options)
            if (word.position_key >= 0)
                return print_error(cat("unexpected argument '", word.value.front(),
                                       "': musterd takes options only; write --port 29400, not port 29400"));
        options::store(line, given);
    } catch (const options::unknown_option& failure) {
        const auto written = failure.get_option_name();
        auto name = std::string_view(written).substr(std::min(written.find_first_not_of('-'), written.size()));
        name = name.substr(0, name.find('='));
        const auto near = nearest(name, rendezvous::option_names(known));
        return print_error(cat("unknown option '", written, "'", near.empty() ? "" : "; the nearest known option is --",
                               near, " (musterd --help lists all)"));
    } catch (const options::error& failure) {
        return print_error(cat(failure.what(), "; musterd --help lists the options"));
    }
    rendezvous::OptionPlaces places;
    if (given.count("config") > 0 && given.count("help") == 0) {
        auto file = rendezvous::read_options(given["config"].as<std::string>(), known, places);
        if (!file) return print_error(file.error().context);
        for (const auto& [name, option] : given)
            if (!option.defaulted()) places.erase(name);  // the command line overrides the file
        options::store(*file, given);
    }
    if (given.count("help") > 0) {
        std::ostringstream text;
        text << "musterd: the rendezvous daemon of muster. Serves agents, PyTorch's TCPStore clients (torchrun with\n"
                "--rdzv-endpoint HOST:PORT --rdzv-conf is_host=0) and GET /healthz, /status, /metrics and /api\non one "
                "port.\nWith a secret, torchrun on other hosts needs --allow-from: PyTorch's client cannot show a "
                "secret.\n\n"
             << known;
        return answer(text.str());
    }
    if (given.count("version") > 0) return answer(build_facts("musterd"));
    return run(given, places);
}

}  // namespace

int main(int argc, char** argv) {
    survive_file_size_limit();
    open_missing_standard_streams();
    const int code = start(argc, argv);
    flush_log(last_flush_max);  // the daemon has ended: another one may lead by now
    return code;
}
