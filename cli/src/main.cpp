#include "entry.h"

int main(int argc, char** argv) { return strata_main(argc, argv); }
