"""What tests of stores, engines and of your own jobs are built from: a clock to set by hand and the model store."""
