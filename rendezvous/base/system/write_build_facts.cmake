# At every build (cmake -P): build_facts.cpp from build_facts.cpp.in, written only when it has changed.
set(MUSTER_COMMIT "unknown (not built from a checkout)")
find_package(Git QUIET)
if(Git_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} --no-optional-locks describe --always --dirty=-changed --abbrev=12 --exclude "*"
                    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                    RESULT_VARIABLE failed)
    if(NOT failed)
        set(MUSTER_COMMIT ${commit})
    endif()
endif()
set(MUSTER_BUILT "")
if(DEFINED ENV{SOURCE_DATE_EPOCH})
    string(TIMESTAMP date "%Y-%m-%d %H:%M:%S UTC" UTC)
    set(MUSTER_BUILT "  built      ${date}\\n")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/build_facts.cpp.in ${OUT} @ONLY)
