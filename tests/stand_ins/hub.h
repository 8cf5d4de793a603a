// How the ranks of an NCCL stand-in exchange bytes: a thread in the process that made the unique id takes one frame
// from each rank and gives all frames to all. The id is the name of an abstract Unix socket, so nothing stays behind.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace muster::stand_ins {

using Frame = std::vector<unsigned char>;

/// Starts a hub; the name to reach it. Empty when the system refuses.
std::string open_hub();
/// Ends one of this process that still waits for ranks.
void close_hub(const std::string& name);

/// One rank's connection. Calls block; end() lets them return.
class HubLink {
  public:
    HubLink();
    ~HubLink();
    HubLink(const HubLink&) = delete;
    HubLink& operator=(const HubLink&) = delete;

    /// Returns when all `size` ranks are connected; false when the link ended first.
    bool connect(const std::string& hub, int rank, int size);
    /// All ranks' frames, in rank order; nothing when the link ended first.
    std::vector<Frame> exchange(const Frame& own);
    /// From any thread.
    void end();

  private:
    const int socket_;
    int size_ = 0;
    std::atomic<bool> ended_ = false;
};

}  // namespace muster::stand_ins
