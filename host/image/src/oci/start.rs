//! What an image starts, as Docker has it.

use super::OciImage;
use crate::error::Result;
use crate::root::{Command, error};
use crate::start::{StartOverrides, StopSignal, absolute};

/// Where commands are looked for if the image does not say.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl OciImage {
    /// What it starts. An entrypoint of `said` takes the place of its `Entrypoint`, and of its `Cmd`, too, as
    /// `docker run --entrypoint` has it; `arguments`, if there are some, that of its `Cmd`. A program without
    /// a slash is looked for in the `PATH` of the image's environment. Directories that the image names are
    /// made.
    ///
    /// # Errors
    /// If it says nothing of what to start, or what is not in it, or lacks its interpreter or a library; if
    /// its user or what is to ask it to end is unknown.
    pub fn command(&mut self, said: &StartOverrides, arguments: &[String]) -> Result<Command> {
        let own = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        let (entrypoint, cmd) = match &said.entrypoint {
            Some(program) => (vec![program.clone()], Vec::new()),
            None => (own(self.config.entrypoint()), own(self.config.cmd())),
        };
        let rest = if arguments.is_empty() { cmd } else { arguments.to_vec() };
        let mut words = entrypoint.into_iter().chain(rest);
        let Some(first) = words.next().filter(|word| !word.is_empty()) else {
            return Err(error(
                &self.place,
                "nothing to start (Entrypoint, Cmd): name a program of the image",
            ));
        };
        let (directory, stop_signal) = (self.directory(said)?, self.stop_signal(said)?);
        let user = self.config.user().clone().filter(|user| !user.is_empty());
        let user = said.user.clone().or(user).unwrap_or_else(|| "0".to_owned());
        let (number, group) = self.root.user(&user)?;
        let mut environment = own(self.config.env());
        let has =
            |environment: &[String], name: &str| environment.iter().any(|entry| entry.starts_with(name));
        if !has(&environment, "PATH=") {
            environment.push(PATH.to_owned());
        }
        if !has(&environment, "HOME=") {
            environment.push(format!("HOME={}", self.root.home(number)));
        }
        let program = self.find(&first, &directory, &environment)?;
        let places = environment.iter().find_map(|entry| entry.strip_prefix("LD_LIBRARY_PATH="));
        let places = places.unwrap_or_default().split(':').filter(|place| place.starts_with('/'));
        self.root.check_program(&program, places.map(str::to_owned).collect())?;
        for made in std::iter::once(&directory).chain(self.config.volumes().iter().flatten()) {
            self.root.make_directory(made);
        }
        let (arguments, user) = (words.collect(), (number, group));
        Ok(Command { program, arguments, environment, directory, user, stop_signal })
    }

    /// Where it begins.
    fn directory(&self, said: &StartOverrides) -> Result<String> {
        if let Some(directory) = &said.directory {
            return absolute(directory, "--workdir", &self.place);
        }
        let directory = self.config.working_dir().clone().filter(|directory| !directory.is_empty());
        absolute(directory.as_deref().unwrap_or("/"), "WorkingDir", &self.place)
    }

    /// What asks it to end.
    fn stop_signal(&self, said: &StartOverrides) -> Result<Option<StopSignal>> {
        let own = self.config.stop_signal().as_deref().filter(|name| !name.is_empty());
        let own = own.filter(|_| said.stop_signal.is_none()).map(str::parse).transpose();
        let own = own.map_err(|text| error(&self.place, format!("StopSignal {text}")))?;
        Ok(said.stop_signal.or(own))
    }

    /// The path of a program of the image.
    fn find(&self, program: &str, directory: &str, environment: &[String]) -> Result<String> {
        let absent =
            |places: &str| error(&self.place, format!("starts {program}, which is not in the image{places}"));
        if program.contains('/') {
            let path = match program.starts_with('/') {
                true => program.to_owned(),
                false => format!("{}/{program}", directory.trim_end_matches('/')),
            };
            return self.root.leads_to_file(&path).then_some(path).ok_or_else(|| absent(""));
        }
        let places = environment.iter().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default();
        let mut paths = places.split(':').map(|place| format!("{}/{program}", place.trim_end_matches('/')));
        let found = paths.find(|path| self.root.leads_to_file(path));
        found.ok_or_else(|| absent(&format!(": looked in {places}")))
    }
}
