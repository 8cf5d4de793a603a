# Finds the headers of CUDA's runtime and of NCCL. Nothing is linked: both libraries are loaded at run time. Searches
#   MUSTER_NVIDIA_PACKAGES  a folder with nccl/, cuda_runtime/, cuda_nvcc/ and cuda_cccl/, as NVIDIA's Python wheels
#                           install them (site-packages/nvidia)
#   .venv                   the same layout, installed by scripts/setup --tests; or the Python in MUSTER_TEST_PYTHON
#   the system              a CUDA toolkit, and nccl.h beside it or in /usr/include
# Sets Nvidia_FOUND and Nvidia_INCLUDE_DIRS; Nvidia_PACKAGES is the folder of the wheels, if they were used.
set(_site "")
if(DEFINED ENV{MUSTER_TEST_PYTHON})
    execute_process(COMMAND $ENV{MUSTER_TEST_PYTHON} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
                    OUTPUT_VARIABLE _site OUTPUT_STRIP_TRAILING_WHITESPACE)
else()
    file(GLOB _site "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages")
endif()
set(MUSTER_NVIDIA_PACKAGES "" CACHE PATH "Folder with nccl/ and cuda_runtime/ of NVIDIA's wheels; empty: the tests' Python's")
set(Nvidia_PACKAGES "${MUSTER_NVIDIA_PACKAGES}")
if(NOT Nvidia_PACKAGES AND EXISTS "${_site}/nvidia/nccl")
    set(Nvidia_PACKAGES "${_site}/nvidia")
endif()

set(_wheels "")
if(Nvidia_PACKAGES)
    foreach(_package nccl cuda_runtime cuda_nvcc cuda_cccl)
        list(APPEND _wheels "${Nvidia_PACKAGES}/${_package}/include")
    endforeach()
endif()
file(GLOB _toolkits LIST_DIRECTORIES true "/usr/local/cuda/include" "/usr/local/cuda/targets/*/include")
set(_system ${_toolkits} $ENV{CUDA_HOME}/include $ENV{NCCL_HOME}/include /usr/include)
find_path(Nvidia_NCCL_HEADERS nccl.h HINTS ${_wheels} PATHS ${_system} NO_CACHE NO_DEFAULT_PATH)
find_path(Nvidia_CUDA_HEADERS cuda_runtime_api.h HINTS ${_wheels} PATHS ${_system} NO_CACHE NO_DEFAULT_PATH)
find_path(Nvidia_CRT_HEADERS crt/host_defines.h HINTS ${_wheels} PATHS ${_system} NO_CACHE NO_DEFAULT_PATH)
find_path(Nvidia_CCCL_HEADERS nv/target HINTS ${_wheels} PATHS ${_system} ${Nvidia_CUDA_HEADERS}/cccl NO_CACHE
          NO_DEFAULT_PATH)

set(Nvidia_VERSION "")
if(Nvidia_NCCL_HEADERS)
    file(STRINGS "${Nvidia_NCCL_HEADERS}/nccl.h" _lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" _numbers "${_lines}")
    list(JOIN _numbers "." Nvidia_VERSION)
endif()
include(FindPackageHandleStandardArgs)
# Older headers lack ncclCommInitRankScalable; an older library is detected at run time.
find_package_handle_standard_args(Nvidia
    REQUIRED_VARS Nvidia_NCCL_HEADERS Nvidia_CUDA_HEADERS Nvidia_CRT_HEADERS Nvidia_CCCL_HEADERS
    VERSION_VAR Nvidia_VERSION)
set(Nvidia_INCLUDE_DIRS ${Nvidia_NCCL_HEADERS} ${Nvidia_CUDA_HEADERS} ${Nvidia_CRT_HEADERS} ${Nvidia_CCCL_HEADERS})
list(REMOVE_DUPLICATES Nvidia_INCLUDE_DIRS)
