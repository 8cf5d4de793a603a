# Manual pages and completions, made by pages/ from what the built programs say for --help.
find_package(Python3 3.9 COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND OR MUSTER_SANITIZE OR CMAKE_CROSSCOMPILING)
    message(STATUS "No manual pages and no completions: they are made by Python 3.9 or newer, from programs that run here")
    return()
endif()
set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
file(GLOB written CONFIGURE_DEPENDS man/*.man)
file(GLOB makers CONFIGURE_DEPENDS pages/*)
add_custom_command(OUTPUT ${pages}/made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1 ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/pages/pages.py
            --bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} --written ${CMAKE_CURRENT_SOURCE_DIR}/man --version ${PROJECT_VERSION} ${pages}
    COMMAND ${CMAKE_COMMAND} -E touch ${pages}/made
    DEPENDS muster musterd muster-stacks ${written} ${makers} VERBATIM)
add_custom_target(pages ALL DEPENDS ${pages}/made)
install(DIRECTORY ${pages}/man1 TYPE MAN COMPONENT muster)
# Where each shell looks for what packages bring, below /usr and /usr/local alike.
install(DIRECTORY ${pages}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT muster)
install(CODE "file(CREATE_LINK muster
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions/musterd\" SYMBOLIC)"
        COMPONENT muster)
install(DIRECTORY ${pages}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT muster)
install(DIRECTORY ${pages}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT muster)
