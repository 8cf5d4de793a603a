// Device memory of the stand-ins: host memory that the library remembers, filled with 0xa5, so that nothing passes for
// zeroed by chance. With MUSTER_STANDIN_HIDDEN=1 the caller gets an address that nobody can touch, and the stand-ins
// find the same bytes at another.
#pragma once

#include <cstddef>

namespace muster::stand_ins {

bool is_of_device(const void* memory);
/// Where the stand-ins find so many bytes; null where they are not all of one block of the device.
void* reach_whole(const void* memory, std::size_t size);
/// False where it is none.
bool give_back(void* memory);

}  // namespace muster::stand_ins

/// Where the stand-ins find what lies at that address, of the device or of the host.
extern "C" void* standin_reach(const void* memory);
