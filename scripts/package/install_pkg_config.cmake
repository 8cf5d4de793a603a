# At the installation: the files of pkg-config, with the prefix that it is made to.
foreach(name muster muster-capi)
    configure_file("${source}/${name}.pc.in" "${work}/${name}.pc" @ONLY)
    file(INSTALL "${work}/${name}.pc" DESTINATION "${CMAKE_INSTALL_PREFIX}/${libdir}/pkgconfig")
endforeach()
