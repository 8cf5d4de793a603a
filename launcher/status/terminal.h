// Draws lines on a terminal: on its alternate screen, only the lines that changed, in one write. Pure but for Terminal.
#pragma once

#include <termios.h>

#include <csignal>
#include <string>
#include <vector>

#include "launcher/status/status_text.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// The bytes that turn the screen `before` into `after`. `rows` is the terminal's height: lines beyond it are not
/// drawn.
std::string screen_update(const std::vector<StatusLine>& before, const std::vector<StatusLine>& after, std::size_t rows,
                          bool colored);

/// True when lines on this descriptor may be colored: it is a terminal, NO_COLOR is not set, and TERM is not "dumb".
bool may_color(int fd);

/// Owns the terminal of stdout while it lives. Its signals: SIGINT and SIGTERM end wait(); SIGTSTP restores the
/// terminal and stops this process, and SIGCONT draws again. The destructor restores the terminal. One at a time.
class Terminal {
  public:
    enum class Wait { elapsed, redraw, quit };

    Terminal();
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    [[nodiscard]] static StatusSize size();
    void draw(const std::vector<StatusLine>& lines);
    /// Until `deadline`, a signal, or the key q. redraw: the size changed, or the process continues.
    Wait wait(Instant deadline);
    /// The signal that ended wait(). 0: the key q.
    [[nodiscard]] int signal() const { return ended_by_; }

  private:
    void enter();
    void leave();
    void suspend();

    sigset_t before_{};  ///< The signal mask of this thread.
    termios modes_{};
    bool has_modes_ = false;  ///< stdin is this terminal, too.
    std::vector<StatusLine> drawn_;
    int ended_by_ = 0;
};

}  // namespace muster::launcher
