// Handles stop signals before the program's own handlers are installed: prints one line and ends the program at once.
#pragma once

namespace muster {

/// What a program's end by a signal during its start looks like from outside.
enum class StartUpEnd {
    exit_code,  ///< Exits with 128+n, as a launcher does that a signal stops.
    by_signal,  ///< Ends by the signal itself, which a service manager counts as an orderly end.
};

struct StartUpAnswer {
    const char* program;   ///< "muster"
    const char* sentence;  ///< End of the line "PROGRAM: SIGTERM during start-up; ".
    StartUpEnd end;
};

/// Handles SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU from now on, except those that are ignored.
/// The handler writes one line to stderr, which begins with the time as other lines do (log.h), but in UTC, and ends
/// the process. `answer` must have static storage duration. Safe before static initialisers: main.cpp of a program
/// calls it from a constructor with priority 101, which runs before all others of the program. The signal mask does not
/// change, so that children inherit the one that the program got.
void answer_start_up_signals(const StartUpAnswer& answer);

/// Gives the default back to each of these signals that still has the handler above. Call it when the program's own
/// handlers are in place, or when the signals that they will handle are blocked.
void end_start_up_signals();

}  // namespace muster
