// Gives the library an object under Catch2 3, which brings its own main.
