#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/program.h"
#include "tests/e2e/tiny_campaign.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

// A coordinator with a certificate and a token on loopback, where neither is asked for.
class SecureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!MakeCertificate("server") || !MakeCertificate("other")) {
      GTEST_SKIP() << "no openssl program to make certificates with";
    }
    token_ = folder_.Write("token", "right\n");
    const std::string port_file = folder_.path() + "/port";
    coordinator_ = std::make_unique<Program>(
        folder_.path(), "lastflopd",
        std::vector<std::string>{"--listen", "127.0.0.1:0", "--db", folder_.path() + "/x.db",
                                 "--tls-cert", Pem("server"), "--tls-key", Key("server"),
                                 "--token-file", token_, "--port-file", port_file});
    ASSERT_TRUE(coordinator_->WaitForErr("event=listening")) << coordinator_->Err();
    std::getline(std::ifstream(port_file), server_);
    ASSERT_FALSE(server_.empty());
  }

  bool MakeCertificate(const std::string& name) const {
    const std::string command = absl::StrCat(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
        "subjectAltName=IP:127.0.0.1 -keyout ",
        Key(name), " -out ", Pem(name), " > /dev/null 2>&1");
    return std::system(command.c_str()) == 0;
  }

  std::string Pem(const std::string& name) const { return folder_.path() + "/" + name + ".pem"; }
  std::string Key(const std::string& name) const { return folder_.path() + "/" + name + ".key"; }

  std::vector<std::string> Secured(std::vector<std::string> arguments,
                                   const std::string& authority = "server") const {
    for (const std::string& more : {std::string("--server"), server_, std::string("--tls-ca"),
                                    Pem(authority), std::string("--token-file"), token_}) {
      arguments.push_back(more);
    }
    return arguments;
  }

  const TestFolder folder_;
  std::string token_;
  std::string server_;
  std::unique_ptr<Program> coordinator_;
};

TEST_F(SecureTest, RunsACampaignOverTlsAndIsWatchedAfterItsEnd) {
  Program worker(folder_.path(), "lastflop-worker", Secured({"--device", "cpu:0"}));
  ASSERT_TRUE(worker.WaitForErr("event=welcome")) << worker.Err();
  const std::string file = WriteTinyCampaign(folder_, kTinyInterventions);
  Program submit(folder_.path(), "lastflop", Secured({"submit", file, "--watch"}));
  ASSERT_EQ(submit.Wait(), 0) << submit.Err();
  const std::string id(absl::StripAsciiWhitespace(submit.Out()));
  Program late(folder_.path(), "lastflop", Secured({"watch", id, "--after", "100000"}));
  EXPECT_EQ(late.Wait(), 0) << late.Err();
  EXPECT_THAT(late.Err(), HasSubstr("done"));
}

TEST_F(SecureTest, TurnsAwayWrongTokensAuthoritiesAndPlainText) {
  Program stranger(folder_.path(), "lastflop", Secured({"list"}, "other"));
  EXPECT_EQ(stranger.Wait(), 4) << stranger.Err();
  token_ = folder_.Write("wrong", "wrong\n");
  Program forger(folder_.path(), "lastflop", Secured({"list"}));
  EXPECT_NE(forger.Wait(), 0);
  EXPECT_THAT(forger.Err(), HasSubstr("token"));
  Program plain(folder_.path(), "lastflop", {"list", "--server", server_});
  EXPECT_EQ(plain.Wait(), 4) << plain.Err();
}

}  // namespace
}  // namespace lastflop
