#include "rendezvous/base/read_file.h"

#include <fstream>
#include <iterator>

namespace muster {

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace muster
