# Writes the files of FOLDER as a C++ table (page_files.h) to OUT.
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT names)
set(arrays "")
set(rows "")
set(number 0)
foreach(name IN LISTS names)
    file(READ ${FOLDER}/${name} bytes HEX)
    string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
    # A string literal is limited in length, so a file is several of them.
    string(REGEX REPLACE "(................................................................)" "\\1\"\n    \"" bytes "${bytes}")
    file(SIZE ${FOLDER}/${name} size)
    string(APPEND arrays "constexpr char file_${number}[] =\n    \"${bytes}\";\n")
    set(path "/page/${name}")
    if(name STREQUAL "index.html")
        set(path "/")
        set(type "text/html; charset=utf-8")
    elseif(name MATCHES "\\.css$")
        set(type "text/css; charset=utf-8")
    elseif(name MATCHES "\\.js$")
        set(type "text/javascript; charset=utf-8")
    else()
        message(FATAL_ERROR "${FOLDER}/${name}: a file of the page ends in .html, .css or .js")
    endif()
    string(APPEND rows "    {\"${path}\", \"${type}\", {file_${number}, ${size}}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "#include \"rendezvous/page/page_files.h\"

#include <algorithm>
#include <array>

namespace muster::rendezvous {

namespace {

${arrays}
constexpr std::array<PageFile, ${number}> files{{
${rows}}};

}  // namespace

const PageFile* find_page_file(std::string_view path) {
    const auto found = std::ranges::find(files, path, &PageFile::path);
    return found == files.end() ? nullptr : &*found;
}

}  // namespace muster::rendezvous
")
