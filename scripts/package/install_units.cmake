# At the installation: systemd's units, which name programs and files by whole paths. Below /usr the configuration is in
# /etc, and the units are in /lib, where Debian's packages have them; below other prefixes they stay there, for
# `systemctl link`.
set(CMAKE_INSTALL_FULL_BINDIR "${CMAKE_INSTALL_PREFIX}/${bindir}")
set(CMAKE_INSTALL_FULL_SYSCONFDIR "${CMAKE_INSTALL_PREFIX}/etc")
set(units "${CMAKE_INSTALL_PREFIX}/lib/systemd/system")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(CMAKE_INSTALL_FULL_SYSCONFDIR /etc)
    set(units /lib/systemd/system)
endif()
file(GLOB templates "${source}/../systemd/*.in")
foreach(template IN LISTS templates)
    get_filename_component(unit ${template} NAME_WLE)
    configure_file("${template}" "${work}/${unit}" @ONLY)
    file(INSTALL "${work}/${unit}" DESTINATION "${units}")
endforeach()
file(GLOB files "${source}/../systemd/*.conf")
foreach(file IN LISTS files)
    # What an administrator wrote stays.
    get_filename_component(name ${file} NAME)
    if(NOT EXISTS "$ENV{DESTDIR}${CMAKE_INSTALL_FULL_SYSCONFDIR}/muster/${name}")
        file(INSTALL ${file} DESTINATION "${CMAKE_INSTALL_FULL_SYSCONFDIR}/muster")
    endif()
endforeach()
