# Compiles worker_runtime/kernels/kernels.cu for GPUs, and writes a source file that embeds the result in the plugin:
# PTX, which every driver since CUDA 11 compiles for any GPU from the first capability below on, and machine code for
# the other capabilities if ptxas is found. MUSTER_KERNEL_SOURCE is that file, or one without code.
#
# clang++ is preferred, because it writes PTX of an old version; nvcc writes PTX of its own version, which older drivers
# refuse. Neither needs CUDA's headers or a GPU. ptxas is part of NVIDIA's compiler wheel (scripts/setup --tests).
set(MUSTER_KERNEL_SOURCE libraries/no_kernel_code.cpp)
# A separate object file, which a test replaces.
set_source_files_properties(libraries/no_kernel_code.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
find_program(MUSTER_CLANG NAMES clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19 clang++)
find_program(MUSTER_NVCC NAMES nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
set(_kernels ${PROJECT_SOURCE_DIR}/worker_runtime/kernels)
set(_out ${CMAKE_CURRENT_BINARY_DIR}/kernels)
file(MAKE_DIRECTORY ${_out})
set(_flags -O3 -std=c++20 -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/worker_runtime/include)
set(_clang_flags -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx70 -nocudainc
                 -nocudalib -ffp-contract=off -Wno-unknown-cuda-version)
set(_nvcc_flags -ptx -arch=compute_75 -fmad=false --expt-relaxed-constexpr -ccbin ${CMAKE_CXX_COMPILER})
# Sets _compiler if the command compiles PTX: some builds of clang do not support GPUs, and an old nvcc lacks C++20.
file(WRITE ${_out}/probe.cu "#include <bit>\nextern \"C\" __attribute__((global)) void probe() {}\n")
function(muster_try_kernel_compiler)
    execute_process(COMMAND ${ARGN} -o ${_out}/probe.ptx ${_out}/probe.cu RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed EQUAL 0)
        set(_compiler ${ARGN} PARENT_SCOPE)
    endif()
endfunction()
set(_compiler "")
set(_beside_nvcc "")
if(MUSTER_CLANG)
    muster_try_kernel_compiler(${MUSTER_CLANG} ${_clang_flags} ${_flags} -S)
    set(_capabilities 70 80 90 100)
endif()
if(NOT _compiler AND MUSTER_NVCC)
    muster_try_kernel_compiler(${MUSTER_NVCC} ${_nvcc_flags} ${_flags})
    set(_capabilities 75 80 90)
    # PTX of nvcc's version needs the assembler from the same folder.
    cmake_path(GET MUSTER_NVCC PARENT_PATH _beside_nvcc)
endif()
if(NOT _compiler)
    muster_left_out("No arithmetic of our own on GPUs: neither a clang++ with code for them nor nvcc was found"
                    "In CI it is built and tested")
    return()
endif()

find_program(MUSTER_PTXAS NAMES ptxas HINTS ${_beside_nvcc} ${Nvidia_PACKAGES}/cuda_nvcc/bin /usr/local/cuda/bin
             NO_DEFAULT_PATH)
find_program(MUSTER_PTXAS NAMES ptxas)
file(GLOB _headers ${_kernels}/*.h)
list(APPEND _headers ${PROJECT_SOURCE_DIR}/worker_runtime/core/always_inline.h
     ${PROJECT_SOURCE_DIR}/worker_runtime/core/host_and_device.h ${PROJECT_SOURCE_DIR}/worker_runtime/core/optimizer_elements.h
     ${PROJECT_SOURCE_DIR}/worker_runtime/arithmetic/half_formats.h ${PROJECT_SOURCE_DIR}/worker_runtime/arithmetic/int8_blocks.h
     ${PROJECT_SOURCE_DIR}/worker_runtime/arithmetic/int8_elements.h ${PROJECT_SOURCE_DIR}/worker_runtime/arithmetic/one_nan.h
     ${PROJECT_SOURCE_DIR}/worker_runtime/arithmetic/power_elements.h ${PROJECT_SOURCE_DIR}/worker_runtime/include/muster/data_type.h)
set(_ptx ${_out}/kernels.ptx)
add_custom_command(OUTPUT ${_ptx} COMMAND ${_compiler} -o ${_ptx} ${_kernels}/kernels.cu
                   DEPENDS ${_kernels}/kernels.cu ${_headers} COMMENT "Compiling kernels for GPUs" VERBATIM)
set(_pieces ${_ptx})
set(_assembly "")
set(_table "")
list(GET _capabilities 0 MUSTER_PTX_CAPABILITY)
foreach(_capability ${_capabilities})
    if(NOT MUSTER_PTXAS)
        break()
    endif()
    # A newer assembler does not support the oldest GPUs, and an older one not the newest: those use the PTX.
    execute_process(COMMAND ${MUSTER_PTXAS} -arch=sm_${_capability} -o ${_out}/probe.cubin ${_out}/probe.ptx
                    RESULT_VARIABLE _failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT _failed EQUAL 0)
        continue()
    endif()
    set(_code ${_out}/kernels_${_capability}.cubin)
    add_custom_command(OUTPUT ${_code} COMMAND ${MUSTER_PTXAS} -O3 -arch=sm_${_capability} -o ${_code} ${_ptx}
                       DEPENDS ${_ptx} VERBATIM)
    list(APPEND _pieces ${_code})
    math(EXPR _major "${_capability} / 10")
    math(EXPR _minor "${_capability} % 10")
    string(APPEND _assembly "CODE(muster_code_${_capability}, \"${_code}\")\n")
    string(APPEND _table "    {${_major}, ${_minor}, muster_code_${_capability}},\n")
endforeach()
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/libraries/kernel_code.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/kernel_code.cpp @ONLY)
set(MUSTER_KERNEL_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/kernel_code.cpp)
# The compiler does not report files of .incbin as dependencies.
set_source_files_properties(${MUSTER_KERNEL_SOURCE} PROPERTIES OBJECT_DEPENDS "${_pieces}"
                            SKIP_UNITY_BUILD_INCLUSION ON)
list(GET _compiler 0 _compiler_name)
message(STATUS "Arithmetic on GPUs: PTX of ${MUSTER_PTX_CAPABILITY} by ${_compiler_name}")
