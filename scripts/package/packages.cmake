# CPack: the components as Debian packages (`cpack --config BUILD/CPackConfig.cmake -B OUT`), below /usr wherever else this
# build tree would install to. What Debian alone wants of a package stands in debian/.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME muster)
set(CPACK_PACKAGE_VENDOR "muster")
set(MUSTER_MAINTAINER "The muster maintainers <maintainers@muster.invalid>" CACHE STRING "Who answers for packages built here")
set(CPACK_PACKAGE_CONTACT "${MUSTER_MAINTAINER}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
# The prefix of what is packed is /usr itself while it is installed, not a folder of CPack's.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)

# muster_package(COMPONENT name SECTION ... SUMMARY ... TEXT ... [DEPENDS ...] [ARCHITECTURE all] [CONTROL file...])
# The text is paragraphs of whole lines, below 80 columns.
function(muster_package component name)
    cmake_parse_arguments(ARG "" "SECTION;SUMMARY;TEXT;DEPENDS;SUGGESTS;ARCHITECTURE" "CONTROL" ${ARGN})
    string(TOUPPER ${component} upper)
    set(variable CPACK_DEBIAN_${upper})
    set(${variable}_PACKAGE_NAME ${name} PARENT_SCOPE)
    set(${variable}_FILE_NAME DEB-DEFAULT PARENT_SCOPE)
    set(${variable}_PACKAGE_SECTION ${ARG_SECTION} PARENT_SCOPE)
    set(${variable}_DESCRIPTION "${ARG_SUMMARY}\n${ARG_TEXT}" PARENT_SCOPE)
    set(${variable}_PACKAGE_DEPENDS "${ARG_DEPENDS}" PARENT_SCOPE)
    set(${variable}_PACKAGE_SUGGESTS "${ARG_SUGGESTS}" PARENT_SCOPE)
    set(${variable}_PACKAGE_CONTROL_EXTRA "${ARG_CONTROL}" PARENT_SCOPE)
    if(ARG_ARCHITECTURE)
        set(${variable}_PACKAGE_ARCHITECTURE ${ARG_ARCHITECTURE} PARENT_SCOPE)
        set(${variable}_PACKAGE_SHLIBDEPS OFF PARENT_SCOPE)
    endif()
    list(APPEND CPACK_COMPONENTS_ALL ${component})
    set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
endfunction()

set(CPACK_COMPONENTS_ALL "")
set(debian ${CMAKE_CURRENT_SOURCE_DIR}/debian)

# Whoever changes these files keeps the changes over an upgrade.
file(GLOB configuration RELATIVE ${PROJECT_SOURCE_DIR}/scripts/systemd ${PROJECT_SOURCE_DIR}/scripts/systemd/*.conf)
list(TRANSFORM configuration REPLACE "(.+)" "/etc/muster/\\1\n")
string(CONCAT configuration ${configuration})
file(CONFIGURE OUTPUT conffiles CONTENT "${configuration}" @ONLY)
muster_package(muster muster SECTION net
    SUMMARY "launcher for distributed training, in the place of torchrun"
    TEXT "muster starts, watches and restarts distributed training jobs. It takes the
command line of torchrun and gives workers the same environment and the same
store, so a PyTorch script runs under it unchanged.

Restarts work across nodes, nodes may come and go, and no process is left
behind, whatever is killed. This package holds the launcher, the rendezvous
daemon musterd, and units for systemd."
    SUGGESTS python3
    CONTROL ${debian}/muster/postinst ${debian}/muster/prerm ${debian}/muster/postrm ${CMAKE_CURRENT_BINARY_DIR}/conffiles)

# What packages need that link it: the C interface only grows.
configure_file(debian/shlibs.in shlibs @ONLY)
muster_package(library libmuster1 SECTION libs
    SUMMARY "worker runtime of the launcher muster"
    TEXT "What a training process links: collectives over shared memory and TCP with the
same bits on every run, a gradient reducer, checkpoints, data order, and a
channel to muster's agent. It works under torchrun too.

This package holds the shared library, for programs in C and for Python."
    SUGGESTS libmuster-nccl
    CONTROL ${CMAKE_CURRENT_BINARY_DIR}/shlibs ${debian}/triggers)

muster_package(development libmuster-dev SECTION libdevel
    SUMMARY "worker runtime of the launcher muster, for development"
    TEXT "Headers and libraries for trainers in C++20 and in C, which CMake's
find_package(muster) and pkg-config find.

The interface for C++ is a static library, that for C a shared one."
    DEPENDS "libmuster1 (= ${PROJECT_VERSION}), libboost1.81-dev | libboost-dev (>= 1.78)"
    SUGGESTS "cmake, pkg-config")

muster_package(python python3-muster SECTION python ARCHITECTURE all
    SUMMARY "worker runtime of the launcher muster, for Python"
    TEXT "Collectives on arrays, a gradient reducer, checkpoints and data order for
training processes in Python. A thin layer over the shared library, which needs
nothing but the standard library: arrays of NumPy and PyTorch are taken as they
are."
    DEPENDS "python3:any, libmuster1 (>= ${PROJECT_VERSION})"
    SUGGESTS "python3-numpy, python3-torch"
    CONTROL ${debian}/python3-muster/postinst ${debian}/python3-muster/prerm)

if(TARGET muster_nccl)
    # The plugin refuses a library of another version, so they are upgraded together.
    muster_package(nccl libmuster-nccl SECTION libs
        SUMMARY "worker runtime of the launcher muster, collectives on GPUs"
        TEXT "The plugin through which muster's worker runtime runs collectives on NVIDIA's
GPUs. It loads the libraries of CUDA and NCCL (2.23 or newer) when a trainer
asks for GPUs, and they need not be there before."
        DEPENDS "libmuster1 (= ${PROJECT_VERSION})"
        SUGGESTS "libnccl2 (>= 2.23)")
endif()

configure_file(debian/changelog.in changelog @ONLY)
execute_process(COMMAND gzip -9nkf changelog WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} COMMAND_ERROR_IS_FATAL ANY)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/debian/add_documents.cmake)
set(CPACK_MUSTER_DOCUMENTS ${debian}/copyright ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz ${PROJECT_SOURCE_DIR}/SECURITY.md)
include(CPack)
