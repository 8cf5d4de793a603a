// The files of the web page, which are part of the program.
#pragma once

#include <string_view>

namespace muster::rendezvous {

struct PageFile {
    std::string_view path;  ///< "/" or "/page/app.js".
    std::string_view type;
    std::string_view bytes;
};

/// Null: the page has no such file.
const PageFile* find_page_file(std::string_view path);

}  // namespace muster::rendezvous
