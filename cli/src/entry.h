#pragma once

/// The whole command, as main() calls it. In a package where the command and the C interface are one library,
/// it is in that library, under a name that has no C++ in it.
extern "C" int strata_main(int argc, char** argv);
