#include <strata/infer/row_adapters.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<AdapterFolders> folders(const std::vector<std::string>& arguments) {
  return adapter_folders(arguments, posix_io());
}

TEST(AdapterFoldersTest, OneFolderIsPartOfTheModelAndNamedOnesAreChosen) {
  EXPECT_EQ(must(folders({})).only, "");
  EXPECT_TRUE(must(folders({})).named.empty());
  EXPECT_EQ(must(folders({"adapters/law"})).only, "adapters/law");
  EXPECT_EQ(must(folders({"./x=y"})).only, "./x=y");
  const AdapterFolders named = must(folders({"law=a/b", "med-1.0_x=c=d/e"}));
  EXPECT_EQ(named.only, "");
  ASSERT_EQ(named.named.size(), 2u);
  EXPECT_EQ(named.named[0].name, "law");
  EXPECT_EQ(named.named[0].path, "a/b");
  EXPECT_EQ(named.named[1].name, "med-1.0_x");
  EXPECT_EQ(named.named[1].path, "c=d/e");
  // A folder that is there is not taken for a name.
  const test::TempDir dir;
  must(posix_io().make_dirs(dir.file("x=y")));
  EXPECT_EQ(must(folders({dir.file("x=y")})).only, dir.file("x=y"));
}

TEST(AdapterFoldersTest, AllProblemsAreReportedAtOnce) {
  const Status status = folders({"law=a", "law=b", "plain", "=c", "a@b=d"}).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--adapter law=b: law is the name of a already"),
                    HasSubstr("--adapter plain: each of several adapters needs a name, as in NAME=plain"),
                    HasSubstr("--adapter =c: the name of an adapter consists of letters"),
                    HasSubstr("--adapter a@b=d: the name of an adapter consists of letters")));
}

}  // namespace
}  // namespace strata
