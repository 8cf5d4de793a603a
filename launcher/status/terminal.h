// The terminal of stdout: draws screens on its alternate screen, in one write each, and reads keys.
#pragma once

#include <termios.h>

#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/status/key_reader.h"
#include "launcher/status/screen.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// True when text on this descriptor may be colored: it is a terminal, NO_COLOR is not set, and TERM is not "dumb".
bool may_color(int fd);

/// Owns the terminal of stdout while it lives. Its signals: SIGINT, SIGTERM, SIGHUP and SIGQUIT end wait(); SIGTSTP
/// restores the terminal and stops this process, and SIGCONT draws again. The destructor restores the terminal. One at
/// a time. Threads that are started while it lives take none of these signals.
class Terminal {
  public:
    enum class Wait { elapsed, redraw, news, key, quit };

    Terminal();
    ~Terminal();
    Terminal& operator=(Terminal&&) = delete;

    [[nodiscard]] static StatusSize size();
    /// Writes the cells that differ from the last screen.
    void draw(Screen screen);
    /// The next draw() writes all cells.
    void forget() { drawn_ = {}; }
    /// Until `deadline`, a signal, a key, or until `news` (a descriptor) can be read. redraw: the size changed, or the
    /// process continues; all is drawn again.
    Wait wait(Instant deadline, int news);
    /// Runs a program (a path; `words` begin with its name) on this terminal until it ends, with a line that says how
    /// one comes back; the next draw() writes all cells. Its Ctrl-C ends it and not this process, and Ctrl-Z does
    /// nothing. If it ends by itself, its last lines stay until Enter is pressed. A signal that ends this process ends
    /// it, too. Not for programs that change the terminal's modes.
    void run(const char* program, const std::vector<std::string>& words);
    /// The key that ended wait().
    [[nodiscard]] const Key& key() const { return key_; }
    /// The signal that ended wait().
    [[nodiscard]] int signal() const { return ended_by_; }

  private:
    void handle_signals(void (*action)(int));
    void enter();
    void leave();
    /// Until a signal ends it: a terminal that takes nothing holds up no end.
    void write_all(std::string_view text);
    bool has_ended_by_itself(pid_t program);
    void wait_for_enter();
    void suspend();
    bool take_key();
    void read_keys();

    sigset_t before_{};  ///< The signal mask of this thread.
    termios modes_{};
    bool has_modes_ = false;  ///< stdin is this terminal, too.
    Screen drawn_;
    KeyReader keys_;
    Key key_;
    int ended_by_ = 0;
};

}  // namespace muster::launcher
