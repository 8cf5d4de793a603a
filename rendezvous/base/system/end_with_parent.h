// For programs that another one of ours runs beside itself, and that may hang.
#pragma once

namespace muster {

/// The kernel kills this process when the thread that started it ends, also while it hangs in a killable call. Its
/// stderr becomes /dev/null: whoever reads the parent's stderr to its end must not wait for this process.
void end_with_parent();

}  // namespace muster
