# The Python wheel: the component `wheel`, laid out as a wheel is. scripts/package/wheel makes it of a build folder, and
# scikit-build-core for `pip install ./worker_runtime/python`, which says itself where programs go.
set(python ${PROJECT_SOURCE_DIR}/worker_runtime/python)
file(STRINGS ${python}/muster/__init__.py line REGEX "^__version__ = ")
if(NOT line STREQUAL "__version__ = \"${PROJECT_VERSION}\"")
    message(FATAL_ERROR "worker_runtime/python/muster/__init__.py has ${line}, and this is muster ${PROJECT_VERSION}: write the version of "
                        "CMakeLists.txt there, and into the name and METADATA of worker_runtime/python/muster-*.dist-info")
endif()

set(scripts muster-${PROJECT_VERSION}.data/scripts)
if(SKBUILD)
    set(scripts ${SKBUILD_SCRIPTS_DIR})
endif()
# All programs in one folder, as in a build tree: the helpers are found beside `muster`.
set(wheel_programs muster musterd muster-stacks muster-check muster-facts muster-gpus muster-pairs muster-persist muster-topology)
if(TARGET muster-gpu-test)
    list(APPEND wheel_programs muster-gpu-test)
endif()
install(TARGETS ${wheel_programs} RUNTIME DESTINATION ${scripts} COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY ${python}/muster DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
install(FILES ${python}/muster_torch.py DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL)
# For `python -m muster.compat`. A wheel has no links, so the one script is there under each of its names.
foreach(name torchrun python python3)
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/torchrun-compat/torchrun RENAME ${name} DESTINATION muster/torchrun-compat COMPONENT wheel
            EXCLUDE_FROM_ALL)
endforeach()
# What `muster torch-build` compiles: the back end sees nothing of the runtime but its C API.
set(source muster/torch/source)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/worker_runtime/torch DESTINATION ${source}/worker_runtime COMPONENT wheel EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.cpp" PATTERN "*.h" PATTERN "find_torch.py")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/worker_runtime/include/muster DESTINATION ${source}/include COMPONENT wheel EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "muster*.h")
# A wheel has no links, so the library has the one name by which it is looked for.
install(FILES $<TARGET_FILE:muster_capi> DESTINATION muster RENAME $<TARGET_SONAME_FILE_NAME:muster_capi> COMPONENT wheel
        EXCLUDE_FROM_ALL)
install(CODE "
    if(CMAKE_INSTALL_DO_STRIP)
        execute_process(COMMAND ${CMAKE_STRIP} --strip-unneeded
            \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/muster/$<TARGET_SONAME_FILE_NAME:muster_capi>\" COMMAND_ERROR_IS_FATAL ANY)
    endif()" COMPONENT wheel EXCLUDE_FROM_ALL)
if(TARGET muster_torch)
    install(TARGETS muster_torch LIBRARY DESTINATION muster COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
add_custom_target(wheel_parts DEPENDS ${wheel_programs} muster_capi $<TARGET_NAME_IF_EXISTS:muster_torch>)
