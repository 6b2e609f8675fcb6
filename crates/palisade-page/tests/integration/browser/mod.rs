//! The page in Chromium: what it shows is what the API says, whatever names there are, by keyboard and in the dark.

mod chromium;
mod hostile;
mod keys;
mod pictures;
mod tab;
mod views;
