# Included when it is known what else is built: muster::build_facts, the text of --version.
set(compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
if(MUSTER_SANITIZE)
    string(APPEND compiler ", sanitizers ${MUSTER_SANITIZE}")
endif()
string(CONCAT libraries "Boost ${Boost_VERSION_STRING}, spdlog ${spdlog_VERSION}, nlohmann_json ${nlohmann_json_VERSION}, "
       "OpenSSL ${OPENSSL_VERSION}, SQLite ${SQLite3_VERSION}, libdw ${elfutils_VERSION}")
set(parts "etcd, stacks")
if(MUSTER_HAS_NCCL)
    string(APPEND parts ", NCCL plugin (headers of NCCL ${MUSTER_NCCL_VERSION})")
else()
    string(APPEND parts "; no NCCL plugin")
endif()
set(facts ${CMAKE_BINARY_DIR}/rendezvous/base/build_facts.cpp)
add_custom_target(muster_write_build_facts BYPRODUCTS ${facts} COMMENT "Writing what --version says" VERBATIM
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D OUT=${facts} -D MUSTER_VERSION=${PROJECT_VERSION}
            -D MUSTER_COMPILER=${compiler} -D MUSTER_LIBRARIES=${libraries} -D MUSTER_PARTS=${parts}
            -P ${PROJECT_SOURCE_DIR}/rendezvous/base/system/write_build_facts.cmake)
muster_library(build_facts ${facts})
add_dependencies(muster_build_facts muster_write_build_facts)
target_link_libraries(muster_build_facts PUBLIC muster::base)
