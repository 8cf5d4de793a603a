// muster-facts LOOK [DIR]: prints facts about this node, one record a line (fact_line.h), and "end".
//
// A program of its own, because a disk, a resolver or a device may hang. LOOK is names, network, system, pci,
// kernel-log or disks; disks needs DIR; --if-there: nothing is printed about one that does not exist.
//
// Exit codes: 0; 2 for another word.
#include <cstdio>
#include <map>
#include <string_view>

#include "agent/probes/facts/looks.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/system/end_with_parent.h"

int main(int argc, char** argv) {
    using namespace muster::agent;
    muster::survive_file_size_limit();
    muster::end_with_parent();
    const std::string_view look = argc > 1 ? argv[1] : "";
    const std::map<std::string_view, void (*)()> looks{{"names", look_at_names},
                                                       {"network", look_at_network},
                                                       {"system", look_at_system},
                                                       {"pci", look_at_pci},
                                                       {"kernel-log", look_at_kernel_log}};
    if (const auto found = looks.find(look); argc == 2 && found != looks.end()) {
        found->second();
    } else if (look == "disks" && (argc == 3 || (argc == 4 && std::string_view(argv[3]) == "--if-there"))) {
        look_at_disk(argv[2], argc == 4);
    } else {
        return 2;  // Nobody would read a word: stderr is /dev/null.
    }
    std::puts("end");
    return 0;
}
