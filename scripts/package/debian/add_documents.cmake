# Between installing and packing: what Debian wants in each package, and an installation elsewhere does not need. COPY,
# because INSTALL would go below the DESTDIR of the last component.
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    file(COPY ${CPACK_MUSTER_DOCUMENTS}
         DESTINATION "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share/doc/${package}")
endforeach()
