// Gives the library of the precompiled headers (muster_parsed_headers() in the root's CMakeLists.txt) an object.
